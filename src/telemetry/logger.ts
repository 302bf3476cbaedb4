import { trace } from '@opentelemetry/api';
import { pino, type DestinationStream, type Logger } from 'pino';
import { prettyFactory } from 'pino-pretty';
import { z } from 'zod';
import type { Config } from '../config.ts';
import { redact } from '../lib/redact.ts';
import { logContext } from './log-context.ts';

/**
 * Creates a logger that writes to standard error; standard output is for the user. Its lines are JSON, except on a
 * terminal. Each line has the ids of its session, turn and request. Keys, passwords and tokens are hidden, wherever in
 * the line they are.
 */
export function createLogger(
  { logLevel: level }: Pick<Config, 'logLevel'>,
  destination: DestinationStream = standardError(),
): Logger {
  return pino({ level, base: null, mixin: scopeFields, hooks: { streamWrite: redact } }, destination);
}

function scopeFields(): object {
  const span = trace.getActiveSpan()?.spanContext();
  return { ...logContext(), ...(span && { traceId: span.traceId }) };
}

function standardError(): DestinationStream {
  const destination = pino.destination({ dest: 2, sync: true });
  return process.stderr.isTTY ? readable(destination) : destination;
}

/** Writes each line for a person: time, level, message and other fields, and an error with its stack on further lines. */
function readable(destination: DestinationStream): DestinationStream {
  const format = prettyFactory({ colorize: true, singleLine: true, translateTime: 'SYS:HH:MM:ss.l' });
  return { write: (line) => destination.write(format(forTerminal(line))) };
}

/** Keeps the most specific of the ids, which leads to the others: together they are wider than a terminal. */
function forTerminal(line: string): string {
  let fields: Record<string, unknown>;
  try {
    fields = z.record(z.string(), z.unknown()).parse(JSON.parse(line, visible));
  } catch {
    // The line is no longer JSON: a value that was hidden in it was not a string.
    return line.trimEnd();
  }
  const [, ...others] = IDS.filter((name) => name in fields);
  for (const name of others) delete fields[name];
  return JSON.stringify(fields);
}

const IDS = ['turnId', 'sessionId', 'requestId', 'traceId'];

/** Replaces control characters by their codes: a text from a model or a client must not command the terminal. */
function visible(_name: string, value: unknown): unknown {
  if (typeof value !== 'string') return value;
  return value.replaceAll(
    /[^\P{Cc}\n\t]/gu,
    (character) => `\\x${character.charCodeAt(0).toString(16).padStart(2, '0')}`,
  );
}
