import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Socket } from 'node:net';

/** A proxy without any rule: it finds all hosts on the loopback, and passes on what it gets. */
export async function startOpenProxy(): Promise<{ url: string; close: () => void }> {
  const sockets = new Set<Socket>();
  const server = createServer({ allowHalfOpen: true }, (client) => {
    sockets.add(client);
    client.on('error', () => client.destroy());
    client.once('data', (first: Buffer) => pass(client, first));
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- it listens on a port
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}`,
    close: () => {
      server.close();
      for (const socket of sockets) socket.destroy();
    },
  };
}

function pass(client: Socket, first: Buffer): void {
  const text = first.toString('latin1');
  const isTunnel = text.startsWith('CONNECT ');
  const [, target = ''] = text.split(' ');
  const { port } = new URL(isTunnel ? `https://${target}` : target);
  const server = connect({ host: '127.0.0.1', port: Number(port || (isTunnel ? 443 : 80)), allowHalfOpen: true });
  server.on('error', () => client.destroy());
  if (isTunnel) client.write('HTTP/1.1 200 Connection established\r\n\r\n');
  const body = text.indexOf('\r\n\r\n') + 4;
  server.write(Buffer.from((isTunnel ? '' : forwarded(text.slice(0, body))) + text.slice(body), 'latin1'));
  client.pipe(server);
  server.pipe(client);
}

/** The head of a request for the server, without the fields that concern the connection: all that the client says. */
function forwarded(head: string): string {
  const named = /^connection: (.*)$/im.exec(head)?.[1]?.toLowerCase().split(/, */) ?? [];
  const lines = head.replace(/http:\/\/[^/]*/, '').split('\r\n');
  return lines.filter((line) => !named.includes(line.replace(/:.*/s, '').toLowerCase())).join('\r\n');
}
