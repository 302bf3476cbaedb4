import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdir, readFile, writeFile } from 'node:fs/promises';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
import path from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);

/** The host from which Temporal's SDK downloads. */
const HOST = 'temporal.download';

/** Answers one request of the SDK, or leaves it without an answer. */
export type Answer = (request: IncomingMessage, response: ServerResponse) => void;

/**
 * Temporal's download, as its SDK sees it: a proxy, as `HTTPS_PROXY` names one, that leads every host to a server of its
 * own, with a certificate for Temporal's host.
 */
export class TemporalDownload {
  /** The requests so far. */
  readonly requests: string[] = [];
  readonly #stop: () => void;
  /** With these variables the SDK trusts the certificate. */
  readonly trustingEnv: Record<string, string>;
  /** With these it does not. */
  readonly env: Record<string, string>;

  private constructor(port: number, certificate: string, stop: () => void) {
    this.env = { HTTPS_PROXY: `http://127.0.0.1:${port}` };
    this.trustingEnv = { ...this.env, SSL_CERT_FILE: certificate };
    this.#stop = stop;
  }

  /** @param folder gets the certificate */
  static async start(folder: string, answer: Answer): Promise<TemporalDownload> {
    const { certificate, key } = await createCertificate(folder);
    const origin = createTlsServer({ cert: await readFile(certificate), key: await readFile(key) });
    const proxy = createServer();
    const sockets = new Set<Socket>();
    proxy.on('connection', (socket) => sockets.add(socket));
    proxy.on('connect', (_, socket: Socket) => {
      socket.on('error', () => undefined);
      socket.write('HTTP/1.1 200 Connection established\r\n\r\n');
      origin.emit('connection', socket);
    });
    proxy.listen(0, '127.0.0.1');
    await once(proxy, 'listening');
    const download = new TemporalDownload((proxy.address() as AddressInfo).port, certificate, () => {
      proxy.close();
      for (const socket of sockets) socket.destroy();
    });
    origin.on('request', (request: IncomingMessage, response: ServerResponse) => {
      download.requests.push(`https://${request.headers.host}${request.url}`);
      answer(request, response);
    });
    return download;
  }

  stop(): void {
    this.#stop();
  }
}

/**
 * Answers as Temporal does: with the address of an archive, and with the archive, which contains `program`.
 *
 * @param silentAfter how many bytes of the archive are sent before nothing more is; default: all
 */
export async function archiveWith(folder: string, program: string, silentAfter?: number): Promise<Answer> {
  const content = path.join(folder, 'archive');
  await mkdir(content);
  await writeFile(path.join(content, 'temporal'), program);
  await chmod(path.join(content, 'temporal'), 0o755);
  await run('tar', ['-czf', path.join(folder, 'archive.tar.gz'), '-C', content, 'temporal']);
  const archive = await readFile(path.join(folder, 'archive.tar.gz'));
  return ({ url }, response) => {
    if (url?.endsWith('.tar.gz')) {
      if (silentAfter === undefined) response.end(archive);
      else response.write(archive.subarray(0, silentAfter));
      return;
    }
    const info = { archiveUrl: `https://${HOST}/archive.tar.gz`, fileToExtract: 'temporal' };
    response.setHeader('content-type', 'application/json').end(JSON.stringify(info));
  };
}

async function createCertificate(folder: string): Promise<{ certificate: string; key: string }> {
  const [certificate, key, config] = ['certificate.pem', 'key.pem', 'openssl.cnf'].map((name) =>
    path.join(folder, name),
  ) as [string, string, string];
  const lines = ['[req]', 'distinguished_name = dn', '[dn]', '[ext]', `subjectAltName = DNS:${HOST}`];
  await writeFile(config, [...lines, 'basicConstraints = critical, CA:FALSE', ''].join('\n'));
  const options = 'req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -extensions ext';
  const files = ['-config', config, '-keyout', key, '-out', certificate];
  await run('openssl', [...options.split(' '), '-subj', `/CN=${HOST}`, ...files]);
  return { certificate, key };
}
