/* A library with cuFFT's name: loads an image for its caller. */
#include "cuabi/types.h"

CUresult load_for(CUresult (*load)(CUmodule *, const void *), CUmodule *ret, const void *image);

__attribute__((visibility("default"))) CUresult load_for(CUresult (*load)(CUmodule *, const void *),
							 CUmodule *ret, const void *image)
{
	volatile CUresult r = load(ret, image); /* no tail call: it must return to this library */

	return r;
}
