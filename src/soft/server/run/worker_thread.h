/* Main functions of the threads of one GPU. */
#ifndef GBPF_SOFT_SERVER_RUN_WORKER_THREAD_H
#define GBPF_SOFT_SERVER_RUN_WORKER_THREAD_H

/* gpu: struct softd_gpu. */
void *softd_worker_main(void *gpu);
void *softd_engine_main(void *gpu); /* a copy engine */

#endif
