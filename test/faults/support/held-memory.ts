import type { ServerProcess } from '../../support/server-process.ts';

/**
 * Environment of processes whose memory is measured. Freed memory is returned to the system: by default glibc keeps a good
 * part of it for reuse, in as many arenas as there are threads.
 */
export const INSPECTED = {
  NODE_OPTIONS: '--inspect=127.0.0.1:0',
  MALLOC_ARENA_MAX: '1',
  MALLOC_TRIM_THRESHOLD_: '131072',
  MALLOC_MMAP_THRESHOLD_: '131072',
};

/** The memory of a process, in bytes. */
export interface HeldMemory {
  /** The live objects of all of its threads. */
  heap: number;
  /** Its resident memory. */
  resident: number;
}

/**
 * Collects the garbage of a process and returns what remains. Without that nothing can be measured: with a heap limit of
 * gigabytes, V8 grows the heap rather than collecting garbage.
 */
export async function heldMemory(process: ServerProcess): Promise<HeldMemory> {
  const url = /^Debugger listening on (ws:\S+)/m.exec(process.output)?.[1];
  if (!url) throw new Error('the process cannot be inspected');
  const inspector = await Inspector.open(url);
  try {
    const heaps = [];
    for (const thread of await inspector.threads()) heaps.push(await heldHeap(thread));
    return { heap: heaps.reduce((sum, heap) => sum + heap, 0), resident: await process.memory() };
  } finally {
    inspector.close();
  }
}

type Ask = (method: string, params?: object) => Promise<Record<string, unknown>>;

async function heldHeap(ask: Ask): Promise<number> {
  await ask('HeapProfiler.collectGarbage');
  const { usedSize } = await ask('Runtime.getHeapUsage');
  return Number(usedSize);
}

interface Message {
  id: number;
  method?: string;
  params?: { sessionId: string; message: string };
  result?: Record<string, unknown>;
  error?: { message: string };
}

/** A connection to Node's inspector. Messages for worker threads are wrapped in messages to the main thread. */
class Inspector {
  readonly #socket: WebSocket;
  readonly #asked = new Map<number, (message: Message) => void>();
  readonly #workers: string[] = [];
  #count = 0;

  private constructor(socket: WebSocket) {
    this.#socket = socket;
    socket.addEventListener('message', ({ data }) => this.#receive(String(data)));
  }

  static async open(url: string): Promise<Inspector> {
    const socket = new WebSocket(url);
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    socket.addEventListener('open', () => resolve());
    socket.addEventListener('error', () => reject(new Error(`no response from ${url}`)));
    await promise;
    return new Inspector(socket);
  }

  async threads(): Promise<Ask[]> {
    const main: Ask = (method, params) => this.#ask(method, params, (letter) => this.#socket.send(letter));
    await main('NodeWorker.enable', { waitForDebuggerOnStart: false });
    const workers = this.#workers.map((sessionId): Ask => {
      const post = (message: string) => void main('NodeWorker.sendMessageToWorker', { sessionId, message });
      return (method, params) => this.#ask(method, params, post);
    });
    return [main, ...workers];
  }

  close(): void {
    this.#socket.close();
  }

  async #ask(method: string, params: object = {}, send: (message: string) => void): Promise<Record<string, unknown>> {
    const id = (this.#count += 1);
    const answered = new Promise<Message>((resolve) => void this.#asked.set(id, resolve));
    send(JSON.stringify({ id, method, params }));
    const { result, error } = await answered;
    if (!result) throw new Error(`${method}: ${error?.message}`);
    return result;
  }

  #receive(text: string): void {
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- as the inspector's protocol has it
    const message = JSON.parse(text) as Message;
    if (message.method === 'NodeWorker.attachedToWorker') this.#workers.push(message.params?.sessionId ?? '');
    else if (message.method === 'NodeWorker.receivedMessageFromWorker') this.#receive(message.params?.message ?? '');
    else this.#asked.get(message.id)?.(message);
  }
}
