import { request, type IncomingMessage } from 'node:http';
import { createInterface } from 'node:readline';

/**
 * Many readers of several turns, in their own process. Prints `ready` when all of them have a stream. When the last stream
 * has ended it prints the measured latency from the model's output to the reader.
 *
 * Arguments: the URL of the sessions, and the number of readers per turn. The turns are read from standard input, one per
 * line: `<session> <turn>`.
 */

const [sessionsUrl = '', readersOfEach = '1'] = process.argv.slice(2);

const lags: number[] = [];
let unfinished = 0;

const streams: Promise<void>[] = [];
const opened: Promise<IncomingMessage>[] = [];
for await (const line of createInterface(process.stdin)) {
  const [sessionId, turnId] = line.split(' ');
  for (let i = 0; i < Number(readersOfEach); i++) {
    const response = open(`${sessionsUrl}/${sessionId}/turns/${turnId}/subscribe`);
    opened.push(response);
    streams.push(response.then(read));
  }
}
await Promise.all(opened);
process.stdout.write('ready\n');
await Promise.all(streams);
lags.sort((a, b) => a - b);
const at = (share: number): number => lags[Math.min(lags.length - 1, Math.floor(lags.length * share))] ?? Number.NaN;
process.stdout.write(`${JSON.stringify({ words: lags.length, unfinished, p50: at(0.5), p99: at(0.99) })}\n`);

function open(url: string): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    request(url, { method: 'POST', agent: false }, resolve).once('error', reject).end();
  });
}

async function read(response: IncomingMessage): Promise<void> {
  let rest = '';
  let isDone = false;
  response.setEncoding('utf8');
  for await (const text of response) {
    const now = performance.timeOrigin + performance.now();
    const lines = `${rest}${String(text)}`.split('\n');
    rest = lines.pop() ?? '';
    // Parsed by hand: the readers share the machine with the measured processes.
    for (const line of lines) {
      if (line.startsWith('data: {"type":"model.message.delta"')) {
        for (const [, saidAt] of line.matchAll(/@(\d+\.\d+)/g)) lags.push(now - Number(saidAt));
      }
      isDone ||= line.startsWith('data: {"type":"turn.done"');
    }
  }
  if (!isDone) unfinished += 1;
}
