import { spawn, type ChildProcessWithoutNullStreams } from 'node:child_process';
import { once } from 'node:events';
import type { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  deserializeMessage,
  isJSONRPCRequest,
  serializeMessage,
  type JSONRPCMessage,
  type Transport,
} from '@modelcontextprotocol/client';
import { getDefaultEnvironment } from '@modelcontextprotocol/client/stdio';
import type { Logger } from 'pino';
import { AnswerGauge, inParts } from '../lib/answer-bounds.ts';
import { Exchange } from './exchange.ts';
import { McpServerError } from './errors.ts';
import { LineReader } from '../lib/line-reader.ts';
import { endGroup } from '../lib/processes.ts';
import type { StdioEndpoint } from './registry.ts';
import type { ServerTransport } from './transport.ts';
import { errorMessage } from '../lib/errors.ts';

export interface StdioOptions {
  log: Logger;
  now: () => number;
  /** The sender of a longer message is ended. */
  maxMessageBytes: number;
}

/** For a program to end by itself once its input has ended, and then again once it was asked to. */
const END_GRACE_MS = 2_000;
/** For the news of a program that is gone to come through, when others hold its pipes. */
const DRAIN_MS = 500;

/**
 * Talks to a server that is a program of ours, a line a message (MCP, "stdio"). The SDK's own transport ends only the
 * program itself, which often is but a shell or `npx` before the real one, and can't say why it has closed.
 */
export class StdioTransport implements ServerTransport {
  readonly kind = 'stdio';
  onclose: Transport['onclose'];
  onerror: Transport['onerror'];
  onmessage: Transport['onmessage'];
  failure: Error | undefined;
  /** The SDK takes a transport that has this and `pid` for one to a process, and knows what its silence means. */
  readonly stderr = null;

  readonly #endpoint: StdioEndpoint;
  readonly #options: StdioOptions;
  readonly #log: Logger;
  #child: ChildProcessWithoutNullStreams | undefined;
  #reading: Promise<void> | undefined;
  #ending: Promise<void> | undefined;

  constructor(endpoint: StdioEndpoint, options: StdioOptions) {
    this.#endpoint = endpoint;
    this.#options = options;
    this.#log = options.log.child({ mcpServer: endpoint.id });
  }

  get pid(): number | null {
    return this.#child?.pid ?? null;
  }

  /** @throws ServerProblem if the program can't be started. */
  async start(): Promise<void> {
    const { command, args, env, cwd } = this.#endpoint;
    const child = spawn(command, args, {
      env: { ...getDefaultEnvironment(), ...env },
      cwd,
      stdio: 'pipe',
      // A process group of its own: it is ended as a whole, and a Ctrl-C at a terminal is for us to answer.
      detached: true,
    });
    const spawned = once(child, 'spawn');
    // Without a process there may be no pipes either.
    if (child.pid !== undefined) this.#attach(child);
    try {
      await spawned;
    } catch (error) {
      const reason = errorMessage(error);
      throw new McpServerError(`can't be started${cwd === undefined ? '' : ` in ${cwd}`}: ${reason}`);
    }
    this.#log.info({ pid: child.pid }, 'the MCP server was started');
  }

  /** @throws ServerProblem if the message, of which the newline is the last byte, can not have been read as a whole. */
  async send(message: JSONRPCMessage): Promise<void> {
    const exchange = isJSONRPCRequest(message) && message.method === 'tools/call' ? Exchange.current : undefined;
    const child = this.#child;
    if (!child || this.#ending) throw this.failure ?? new McpServerError('is not running');
    if (exchange) exchange.sent = true;
    const isWritten = await new Promise<boolean>((resolve) => {
      child.stdin.write(serializeMessage(message), (error) => resolve(!error));
    });
    if (isWritten) return;
    if (exchange) exchange.sent = false;
    // Mostly because it has ended, which we are about to hear of.
    if (isRunning(child)) await Promise.race([once(child, 'exit'), sleep(DRAIN_MS, undefined, { ref: false })]);
    this.#end(new McpServerError('closed its input'));
    throw this.failure ?? new McpServerError('is not running');
  }

  /** Settles when the program, and whatever it has started in its group, is gone. */
  close(): Promise<void> {
    this.#end(undefined);
    return this.#ending ?? Promise.resolve();
  }

  #attach(child: ChildProcessWithoutNullStreams): void {
    this.#child = child;
    this.#reading = this.#read(child.stdout);
    const stderr = new StderrLog(this.#log, this.#options.now);
    child.stderr.on('data', (chunk: Buffer) => stderr.push(chunk)).on('end', () => stderr.end());
    // What can't be written is told of by `write`; a pipe that breaks otherwise is one whose process ends.
    for (const stream of [child.stdin, child.stdout, child.stderr]) stream.on('error', () => {});
    child.once('exit', (code, signal) => {
      const how = signal ? `was ended by ${signal}` : `ended with exit code ${code}`;
      if (!this.#ending) this.#log.warn({ pid: child.pid }, `the MCP server ${how}`);
      this.#end(new McpServerError(how));
    });
  }

  /** Ends the connection at once, and the processes in their own time. */
  #end(failure: Error | undefined): void {
    const child = this.#child;
    if (this.#ending || !child) return;
    this.failure = failure;
    this.#ending = this.#endProcesses(child);
  }

  async #endProcesses(child: ChildProcessWithoutNullStreams): Promise<void> {
    const { pid } = child;
    const closed = Promise.all([once(child, 'close'), this.#reading]);
    if (!isRunning(child)) {
      // Answers may still be in the pipe.
      await Promise.race([closed, sleep(DRAIN_MS, undefined, { ref: false })]);
      this.onclose?.();
    } else {
      this.onclose?.();
      child.stdin.end();
      await Promise.race([closed, sleep(END_GRACE_MS, undefined, { ref: false })]);
    }
    if (pid !== undefined) await endGroup(pid, END_GRACE_MS);
    if (isRunning(child)) await once(child, 'exit');
    for (const stream of [child.stdin, child.stdout, child.stderr]) stream.destroy();
  }

  async #read(stdout: Readable): Promise<void> {
    const gauge = new AnswerGauge({ maxBytes: this.#options.maxMessageBytes }, 'lines');
    const lines = new LineReader(Infinity, (line) => this.#line(line));
    try {
      for await (const chunk of stdout) {
        await inParts(chunk, gauge, (part) => lines.push(part)).catch((error: unknown) => {
          // Before the loop is left, which closes the pipe: what the program makes of that explains nothing.
          this.#end(error instanceof Error ? error : new Error(String(error)));
          throw error;
        });
      }
    } catch {
      // A pipe that breaks otherwise is one whose process ends.
    } finally {
      gauge.release();
    }
  }

  #line(line: string): void {
    if (this.#ending && !this.failure) return;
    let message: JSONRPCMessage;
    try {
      message = deserializeMessage(line);
    } catch (error) {
      // Programs print all kinds of things where only messages belong.
      this.onerror?.(error instanceof Error ? error : new Error(String(error)));
      return;
    }
    this.onmessage?.(message);
  }
}

function isRunning({ exitCode, signalCode }: ChildProcessWithoutNullStreams): boolean {
  return exitCode === null && signalCode === null;
}

const MAX_LINE_BYTES = 2_000;
const MAX_LINES = 100;
const WINDOW_MS = 10_000;

/** Passes on to our log what a program says on its standard error: 100 lines in 10 s, and how many more there were. */
export class StderrLog {
  readonly #log: Logger;
  readonly #now: () => number;
  readonly #lines = new LineReader(MAX_LINE_BYTES, (line, isWhole) => this.#line(isWhole ? line : `${line}…`));
  #windowEnd = -Infinity;
  #count = 0;

  /** `now`: milliseconds that never run backwards. */
  constructor(log: Logger, now: () => number) {
    this.#log = log;
    this.#now = now;
  }

  push(chunk: Buffer): void {
    this.#lines.push(chunk);
  }

  end(): void {
    this.#lines.end();
    this.#reportOmitted();
  }

  #line(line: string): void {
    if (this.#now() >= this.#windowEnd) {
      this.#reportOmitted();
      this.#windowEnd = this.#now() + WINDOW_MS;
      this.#count = 0;
    }
    this.#count += 1;
    if (this.#count <= MAX_LINES) this.#log.info(line);
  }

  #reportOmitted(): void {
    const omitted = this.#count - MAX_LINES;
    if (omitted > 0) this.#log.warn(`${omitted} more lines were left out`);
    this.#count = 0;
  }
}
