import { spawn, type ChildProcessWithoutNullStreams } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  deserializeMessage,
  serializeMessage,
  type JSONRPCMessage,
  type Transport,
} from '@modelcontextprotocol/client';
import type { Logger } from 'pino';
import { Exchange } from './exchange.ts';
import { McpServerError, tooLargeError, unreadableError } from './errors.ts';
import { LineReader } from '../lib/line-reader.ts';
import { MessageLines, type CutLine } from './message-lines.ts';
import { OpenRequests } from './open-requests.ts';
import { endGroup, leaversOf } from '../lib/processes.ts';
import { programEnv } from './program-env.ts';
import type { ProgramRecords } from './program-records.ts';
import type { StdioEndpoint } from './registry.ts';
import type { StreamBudget } from './stream-budget.ts';
import type { ServerTransport } from './transport.ts';
import { errorMessage } from '../lib/errors.ts';

export interface StdioOptions {
  log: Logger;
  now: () => number;
  /** A longer message is not read, except for its ends; the request to which it responds fails. */
  maxMessageBytes: number;
  /** A program that sends more is ended. */
  budget: StreamBudget;
  /** Where running programs are recorded; without it, a crash may leave them running. */
  programs?: Pick<ProgramRecords, 'add'> | undefined;
}

/** How long a program may take to end after its input was closed, and again after it was signalled. */
const END_GRACE_MS = 2_000;
/** How long to read the pipes of an ended program that other processes still hold open. */
const DRAIN_MS = 500;

/**
 * Transport for a server that is a local program, with one message per line (MCP, "stdio"). The SDK's own transport ends
 * only the program itself, which is often a shell or `npx` that started the real one, and does not report why it closed.
 */
export class StdioTransport implements ServerTransport {
  readonly kind = 'stdio';
  onclose: Transport['onclose'];
  onerror: Transport['onerror'];
  onmessage: Transport['onmessage'];
  failure: Error | undefined;
  /** The SDK treats a transport with this field and `pid` as a process, which affects how it interprets silence. */
  readonly stderr = null;

  readonly #endpoint: StdioEndpoint;
  readonly #options: StdioOptions;
  readonly #log: Logger;
  readonly #stderr: StderrLog;
  readonly #requests = new OpenRequests((id, error) => this.onmessage?.(tooLargeError(id, error)));
  #child: ChildProcessWithoutNullStreams | undefined;
  /** The program's working folder, if it was made for it. */
  #folder: string | undefined;
  /** Deletes the record of the program. */
  #recorded: Promise<(() => Promise<void>) | undefined> | undefined;
  readonly #firstOutput = Promise.withResolvers<void>();
  #reading: Promise<void> | undefined;
  #ending: Promise<void> | undefined;

  constructor(endpoint: StdioEndpoint, options: StdioOptions) {
    this.#endpoint = endpoint;
    this.#options = options;
    this.#log = options.log.child({ mcpServer: endpoint.id });
    this.#stderr = new StderrLog(this.#log, options.now);
  }

  get pid(): number | null {
    return this.#child?.pid ?? null;
  }

  get firstOutput(): Promise<void> {
    return this.#firstOutput.promise;
  }

  readonly stderrEnd = (): string => this.#stderr.lastLines.join(' | ');

  /** @throws McpServerError if the program cannot be started */
  async start(): Promise<void> {
    const { command, args, env, cwd } = this.#endpoint;
    try {
      const child = spawn(command, args, {
        env: { ...programEnv(process.env), ...env },
        cwd: cwd ?? this.#makeFolder(),
        stdio: 'pipe',
        // A separate process group, so that it is ended as a whole and does not receive Ctrl-C from a terminal.
        detached: true,
      });
      const spawned = once(child, 'spawn');
      // Without a process there may be no pipes.
      if (child.pid !== undefined) this.#attach(child, child.pid);
      await spawned;
      await this.#recorded;
    } catch (error) {
      if (!this.#child) await this.#removeFolder();
      const reason = errorMessage(error);
      throw new McpServerError(`cannot be started${cwd === undefined ? '' : ` in ${cwd}`}: ${reason}`);
    }
    this.#log.info({ pid: this.pid }, 'the MCP server was started');
  }

  /**
   * An empty folder, outside of Everturn's: programs look for files and packages in the folder they run in, and in those
   * above it. Synchronous, so that a transport that is closed while it starts has a process to end.
   */
  #makeFolder(): string {
    this.#folder = mkdtempSync(path.join(tmpdir(), 'everturn-mcp-'));
    return this.#folder;
  }

  async #removeFolder(): Promise<void> {
    if (this.#folder === undefined) return;
    await rm(this.#folder, { recursive: true, force: true }).catch((error: unknown) =>
      this.#log.warn({ err: error }, 'the folder of an MCP server cannot be deleted'),
    );
  }

  async #record(pid: number): Promise<(() => Promise<void>) | undefined> {
    try {
      return await this.#options.programs?.add(pid, this.#folder);
    } catch (error) {
      this.#log.warn({ err: error, pid }, 'the MCP server cannot be recorded: after a crash it may be left running');
      return undefined;
    }
  }

  /** @throws McpServerError if the program cannot have read the whole message, whose last byte is the newline */
  async send(message: JSONRPCMessage): Promise<void> {
    const exchange = Exchange.ofCall(message);
    const child = this.#child;
    if (!child || this.#ending) throw this.failure ?? new McpServerError('is not running');
    if (exchange) exchange.sent = true;
    this.#requests.sent(message);
    const isWritten = await new Promise<boolean>((resolve) => {
      child.stdin.write(serializeMessage(message), (error) => resolve(!error));
    });
    if (isWritten) return;
    if (exchange) exchange.sent = false;
    // The usual reason is that the program has ended; its exit event is about to arrive.
    if (isRunning(child)) await Promise.race([once(child, 'exit'), sleep(DRAIN_MS, undefined, { ref: false })]);
    this.#end(new McpServerError('closed its input'));
    throw this.failure ?? new McpServerError('is not running');
  }

  /** Settles when the program and all processes in its group have ended. */
  close(): Promise<void> {
    this.#end(undefined);
    return this.#ending ?? Promise.resolve();
  }

  #attach(child: ChildProcessWithoutNullStreams, pid: number): void {
    this.#child = child;
    this.#recorded = this.#record(pid);
    this.#reading = this.#read(child.stdout);
    child.stderr.on('data', (chunk: Buffer) => this.#stderr.push(chunk)).on('end', () => this.#stderr.end());
    // Failed writes are reported to `write`; otherwise a pipe breaks because its process ends.
    for (const stream of [child.stdin, child.stdout, child.stderr]) stream.on('error', () => {});
    child.once('exit', (code, signal) => {
      const how = signal ? `was ended by ${signal}` : `ended with exit code ${code}`;
      if (!this.#ending) this.#log.warn({ pid: child.pid }, `the MCP server ${how}`);
      this.#end(new McpServerError(how, { stderr: this.stderrEnd }));
    });
  }

  /** Ends the connection at once, and the processes after their grace periods. */
  #end(failure: Error | undefined): void {
    const child = this.#child;
    if (this.#ending || !child) return;
    this.failure = failure;
    this.#ending = this.#endProcesses(child);
  }

  async #endProcesses(child: ChildProcessWithoutNullStreams): Promise<void> {
    const { pid } = child;
    const closed = Promise.all([once(child, 'close'), this.#reading]);
    let leavers: Awaited<ReturnType<typeof leaversOf>> | undefined;
    if (!isRunning(child)) {
      // The pipe may still contain responses.
      await Promise.race([closed, sleep(DRAIN_MS, undefined, { ref: false })]);
      this.onclose?.();
    } else {
      this.onclose?.();
      // Before it ends: a browser without its parent could not be found.
      if (pid !== undefined) leavers = await leaversOf(pid);
      child.stdin.end();
      await Promise.race([closed, sleep(END_GRACE_MS, undefined, { ref: false })]);
    }
    if (pid !== undefined) await endGroup(pid, END_GRACE_MS, leavers);
    if (isRunning(child)) await once(child, 'exit');
    for (const stream of [child.stdin, child.stdout, child.stderr]) stream.destroy();
    await this.#removeFolder();
    const forget = await this.#recorded;
    await forget?.();
  }

  async #read(stdout: Readable): Promise<void> {
    const { maxMessageBytes, budget } = this.#options;
    const lines = new MessageLines({
      maxBytes: maxMessageBytes,
      onBytes: (bytes) => budget.spend({ bytes }),
      onLine: (line) => this.#line(line),
      onCut: (line) => this.#cut(line),
    });
    try {
      for await (const chunk of stdout) {
        this.#firstOutput.resolve();
        await lines.push(chunk).catch((error: unknown) => {
          // Before the loop ends, which closes the pipe: the program's reaction to that would hide the cause.
          this.#end(error instanceof Error ? error : new Error(String(error)));
          throw error;
        });
      }
    } catch {
      // Otherwise a pipe breaks because its process ends.
    } finally {
      lines.release();
    }
  }

  #line(line: string): void {
    if (this.#ending && !this.failure) return;
    this.#options.budget.spend({ messages: 1 });
    let message: JSONRPCMessage;
    try {
      message = deserializeMessage(line);
    } catch (error) {
      // Some programs print other text on standard output, which is reserved for messages.
      this.onerror?.(error instanceof Error ? error : new Error(String(error)));
      const requestId = this.#requests.invalid(line);
      if (requestId !== undefined) this.onmessage?.(unreadableError(requestId));
      return;
    }
    this.#requests.received(message);
    this.onmessage?.(message);
  }

  #cut(line: CutLine): void {
    this.#options.budget.spend({ messages: 1 });
    this.#log.warn(`a message of the MCP server was dropped: ${line.error.message}`);
    this.#requests.cut(line);
  }
}

function isRunning({ exitCode, signalCode }: ChildProcessWithoutNullStreams): boolean {
  return exitCode === null && signalCode === null;
}

const MAX_LINE_BYTES = 2_000;
const MAX_LINES = 100;
const WINDOW_MS = 10_000;
/** The lines that may contain the reason why a program has ended. */
const MAX_LAST_LINES = 10;
/** Programs on Node print their error above its stack. */
const STACK_FRAME = /^\s+at /;

/**
 * Copies the standard error of a program to the log: up to 100 lines in 10 s, and the number of lines omitted. It keeps
 * the last lines.
 */
export class StderrLog {
  readonly #log: Logger;
  readonly #now: () => number;
  readonly #lines = new LineReader(MAX_LINE_BYTES, (line, isWhole) => this.#line(isWhole ? line : `${line}…`));
  /** The last 10 lines, of up to 2,000 bytes, without empty ones and frames of stacks; secrets are not hidden. */
  lastLines: readonly string[] = [];
  #windowEnd = -Infinity;
  #count = 0;

  /** `now`: a monotonic clock in milliseconds. */
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
    if (line.trim() === '' || STACK_FRAME.test(line)) return;
    this.lastLines = [...this.lastLines, line].slice(-MAX_LAST_LINES);
  }

  #reportOmitted(): void {
    const omitted = this.#count - MAX_LINES;
    if (omitted > 0) this.#log.warn(`${omitted} more lines were left out`);
    this.#count = 0;
  }
}
