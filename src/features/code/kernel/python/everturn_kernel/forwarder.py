"""The way of a sandbox to the proxy of the kernel host: a process that passes on what comes to a port of the sandbox's loopback.

Clients of HTTP know proxies by host and port, and the proxy is outside of the network namespace, at a socket that is a file. This
process decides nothing, since code could replace it: the proxy does.
"""

import os
import signal
import socket

_CONNECTIONS = 64
_CHUNK_BYTES = 64 * 1024


def start(network, confine):
    """
    Starts it. Connections are accepted from now on.

    :param network: the port, and the path of the socket
    :param confine: puts up the wall around it
    """
    listener = socket.create_server(("127.0.0.1", network["port"]), backlog=_CONNECTIONS)
    gate, opened = os.pipe()
    # Twice, so that code which waits for its children does not wait for this process.
    if child := os.fork():
        os.waitpid(child, 0)
        for descriptor in (listener.detach(), gate, opened):
            os.close(descriptor)
        return
    if os.fork():
        os._exit(0)
    try:
        os.close(opened)
        # Until the process that has started it has ended, and the next one is its parent, with which it is ended.
        os.read(gate, 1)
        os.close(gate)
        # Code has the output to itself.
        for descriptor in (1, 2):
            os.dup2(0, descriptor)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        confine()
        _run(listener, network["socket"])
    finally:
        os._exit(1)


def _run(listener, place):
    # Not before: it takes longer to import than a kernel takes to be confined.
    import asyncio

    async def copy(reader, writer):
        while data := await reader.read(_CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
        writer.write_eof()

    async def forward(client):
        streams = [await asyncio.open_connection(sock=client)]
        try:
            streams.append(await asyncio.open_unix_connection(place))
            (from_code, to_code), (from_proxy, to_proxy) = streams
            await asyncio.gather(copy(from_code, to_proxy), copy(from_proxy, to_code))
        except OSError:
            # One side has gone.
            pass
        finally:
            for _, writer in streams:
                writer.close()

    async def serve():
        loop = asyncio.get_running_loop()
        # Further ones wait to be accepted.
        places = asyncio.Semaphore(_CONNECTIONS)
        running = set()

        def leave(task):
            running.discard(task)
            places.release()

        while True:
            await places.acquire()
            client, _ = await loop.sock_accept(listener)
            task = asyncio.create_task(forward(client))
            running.add(task)
            task.add_done_callback(leave)

    listener.setblocking(False)
    asyncio.run(serve())
