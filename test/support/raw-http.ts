import { connect } from 'node:net';
import { text } from 'node:stream/consumers';

export interface RawAnswer {
  status: number;
  headers: Headers;
  // oxlint-disable-next-line typescript/no-explicit-any -- tests look into answers of every shape
  body: any;
}

/** Sends bytes unchanged and reads the response until the connection closes: request that with `connection: close`. */
export async function exchange(url: string, ...parts: (string | Uint8Array)[]): Promise<RawAnswer> {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname);
  for (const part of parts) socket.write(part);
  const answer = await text(socket);
  const end = answer.indexOf('\r\n\r\n');
  const [statusLine = '', ...lines] = answer.slice(0, end).split('\r\n');
  return {
    status: Number(statusLine.split(' ')[1]),
    headers: new Headers(
      lines.map((line): [string, string] => [line.split(':', 1)[0] ?? '', line.replace(/^.*?: */, '')]),
    ),
    body: JSON.parse(answer.slice(end + 4) || 'null'),
  };
}

/** Sends a request with a JSON body, and closes the connection before any response. */
export async function hangUp(url: string, path: string, body: object): Promise<void> {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname);
  const json = JSON.stringify(body);
  const head = `POST ${path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: ${Buffer.byteLength(json)}\r\n\r\n`;
  await new Promise<void>((resolve) => socket.write(head + json, () => resolve()));
  socket.destroy();
}
