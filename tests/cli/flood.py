"""flood.py UID KIND DIRECTORY [N]: as that user, floods the gbpfd of a runtime directory until either is ended, or N times.

	garbage  sessions that break the protocol, each of which is an event
	connect  connections to both sockets that are closed at once
	hello    hellos and requests on control connections, as many as there may be
"""
import os
import socket
import sys

uid, kind, folder = int(sys.argv[1]), sys.argv[2], sys.argv[3]
left = int(sys.argv[4]) if len(sys.argv) > 4 else -1
os.setgroups([])
os.setresgid(uid, uid, uid)
os.setresuid(uid, uid, uid)
REQUESTS = b'{"id":1,"method":"hello","params":{"protocol":1}}\n' + b'{"id":2,"method":"status"}\n{"id":3,"method":"ps"}\n' * 50


def connect(leaf, type_):
	s = socket.socket(socket.AF_UNIX, type_)
	s.settimeout(600)
	s.connect(f'{folder}/{leaf}.sock')
	return s


def garbage():
	s = connect('session', socket.SOCK_SEQPACKET)
	s.send(b'garbage')
	while s.recv(4096): # until gbpfd has closed it
		pass


def connections():
	for leaf, type_ in ('session', socket.SOCK_SEQPACKET), ('control', socket.SOCK_STREAM):
		connect(leaf, type_).close()


open_ones = []


def hello():
	if len(open_ones) < 32:
		open_ones.append(connect('control', socket.SOCK_STREAM))
	s = open_ones.pop(0)
	s.settimeout(0)
	try:
		s.send(REQUESTS)
	except BlockingIOError:
		pass
	try:
		while s.recv(1 << 20):
			pass
		s.close()
		return
	except BlockingIOError:
		open_ones.append(s)


print('floods', flush=True)
while left:
	left -= 1
	try:
		{'garbage': garbage, 'connect': connections, 'hello': hello}[kind]()
	except OSError:
		if not os.path.exists(f'{folder}/control.sock'):
			break # gbpfd has ended
print('done', flush=True)
