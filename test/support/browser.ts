import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { z } from 'zod';
import { killUsersAtEnd } from './reaper.ts';

const message = z.looseObject({
  id: z.int().optional(),
  method: z.string().optional(),
  params: z.looseObject({}).optional(),
  result: z.looseObject({}).optional(),
  error: z.looseObject({ message: z.string() }).optional(),
});

type Listener = (params: Record<string, unknown>) => void;

/** A headless Chromium, controlled by its own protocol. It can connect to this machine only. */
export class Browser {
  /** The URLs that the page has requested. */
  readonly requests: string[] = [];
  /** The errors of the console, including violations of the page's content security policy. */
  readonly complaints: string[] = [];
  readonly #process: ChildProcess;
  readonly #profile: string;
  readonly #socket: WebSocket;
  readonly #waiting = new Map<number, PromiseWithResolvers<Record<string, unknown>>>();
  readonly #listeners = new Map<string, Listener>();
  #session: string | undefined;
  #sent = 0;

  private constructor(process: ChildProcess, profile: string, socket: WebSocket) {
    this.#process = process;
    this.#profile = profile;
    this.#socket = socket;
    socket.addEventListener('message', ({ data }) => this.#receive(String(data)));
  }

  static async start(): Promise<Browser> {
    const profile = await mkdtemp(path.join(tmpdir(), 'everturn-browser-'));
    killUsersAtEnd(profile);
    const child = spawn(
      'chromium',
      [
        '--headless',
        '--no-sandbox',
        '--disable-gpu',
        '--disable-background-networking',
        '--disable-component-update',
        '--disable-sync',
        '--no-first-run',
        '--window-size=1280,1600',
        '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1',
        `--user-data-dir=${profile}`,
        '--remote-debugging-port=0',
        'about:blank',
      ],
      { stdio: ['ignore', 'ignore', 'pipe'] },
    );
    const url = await debuggerUrl(child);
    const socket = new WebSocket(url);
    await once(socket, 'open');
    const browser = new Browser(child, profile, socket);
    await browser.#attach();
    return browser;
  }

  async #attach(): Promise<void> {
    const { targetId } = await this.send('Target.createTarget', { url: 'about:blank' });
    const { sessionId } = await this.send('Target.attachToTarget', { targetId, flatten: true });
    this.#session = String(sessionId);
    const text = z.looseObject({ entry: z.object({ level: z.string(), text: z.string() }).optional() });
    this.#listeners.set('Log.entryAdded', (params) => {
      const { entry } = text.parse(params);
      if (entry?.level === 'error') this.complaints.push(entry.text);
    });
    this.#listeners.set('Runtime.exceptionThrown', (params) => this.complaints.push(JSON.stringify(params)));
    const asked = z.looseObject({ request: z.object({ url: z.string() }) });
    this.#listeners.set('Network.requestWillBeSent', (params) => this.requests.push(asked.parse(params).request.url));
    for (const domain of ['Page', 'Network', 'Log', 'Runtime']) await this.send(`${domain}.enable`);
  }

  async open(url: string): Promise<void> {
    await this.send('Page.navigate', { url });
  }

  /** The value of an expression in the page. */
  async evaluate(expression: string): Promise<unknown> {
    const { result, exceptionDetails } = await this.send('Runtime.evaluate', {
      expression,
      returnByValue: true,
      awaitPromise: true,
    });
    if (exceptionDetails) throw new Error(JSON.stringify(exceptionDetails));
    return z.looseObject({ value: z.unknown().optional() }).parse(result).value;
  }

  /** Waits until an element that matches the selector contains the text; returns all of its text. */
  async waitFor(selector: string, text = ''): Promise<string> {
    const found = await this.evaluate(`new Promise((resolve) => {
      const look = () => {
        const texts = [...document.querySelectorAll(${JSON.stringify(selector)})].map((one) => one.textContent);
        const text = texts.find((one) => one.includes(${JSON.stringify(text)}));
        if (text === undefined) setTimeout(look, 50);
        else resolve(text);
      };
      look();
    })`);
    return String(found);
  }

  async click(selector: string): Promise<void> {
    await this.waitFor(selector);
    await this.evaluate(`document.querySelector(${JSON.stringify(selector)}).click()`);
  }

  /** Types into the field that matches the selector. */
  async type(selector: string, text: string): Promise<void> {
    await this.waitFor(selector);
    await this.evaluate(`document.querySelector(${JSON.stringify(selector)}).focus()`);
    await this.send('Input.insertText', { text });
  }

  /** Sends a command of the protocol. */
  async send(method: string, params: Record<string, unknown> = {}): Promise<Record<string, unknown>> {
    const id = ++this.#sent;
    const answer = Promise.withResolvers<Record<string, unknown>>();
    this.#waiting.set(id, answer);
    this.#socket.send(JSON.stringify({ id, method, params, ...(this.#session && { sessionId: this.#session }) }));
    return answer.promise;
  }

  #receive(data: string): void {
    const { id, method, params = {}, result = {}, error } = message.parse(JSON.parse(data));
    if (method !== undefined) this.#listeners.get(method)?.(params);
    const answer = id === undefined ? undefined : this.#waiting.get(id);
    if (error) answer?.reject(new Error(error.message));
    else answer?.resolve(result);
  }

  async stop(): Promise<void> {
    this.#socket.close();
    const exited = once(this.#process, 'exit');
    this.#process.kill();
    await exited;
    await rm(this.#profile, { recursive: true, force: true, maxRetries: 5 });
  }
}

/** Chromium prints on standard error where it listens. */
async function debuggerUrl(child: ChildProcess): Promise<string> {
  if (!child.stderr) throw new Error('started without standard error');
  const lines: string[] = [];
  for await (const line of createInterface({ input: child.stderr })) {
    const [, url] = /^DevTools listening on (ws:.*)$/.exec(line) ?? [];
    if (url) return url;
    lines.push(line);
  }
  throw new Error(`chromium did not start: ${lines.join('\n')}`);
}
