"""The soft GPU's client exports every function of the list and nothing else: exports.py LIBRARY DRIVER_DEF"""
import subprocess
import sys

library, definition = sys.argv[1:]
wanted = {line.split()[0] for line in open(definition) if line.startswith("cu")}
lines = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
found = {line.split()[-1].split("@")[0] for line in lines.splitlines()}
for name in sorted(wanted - found):
    print("missing:", name)
for name in sorted(found - wanted):
    print("too many:", name)
needed = subprocess.run(["readelf", "-d", library], check=True, capture_output=True, text=True).stdout
libraries = [line.split("[")[1].rstrip("]") for line in needed.splitlines() if "(NEEDED)" in line]
foreign = [name for name in libraries if not name.startswith(("libc.so", "ld-linux"))]
if foreign:
    print("needs more than libc:", foreign)
sys.exit(wanted != found or bool(foreign))
