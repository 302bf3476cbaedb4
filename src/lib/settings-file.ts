import { readFile } from 'node:fs/promises';
import type { z } from 'zod';
import { registerSecrets } from './redact.ts';
import { secretVariable } from './secret-variable.ts';
import { namingUnknownKeys } from './unknown-keys.ts';

interface SettingsFileOptions<T> {
  env: NodeJS.ProcessEnv;
  schema: z.ZodType<T>;
  /** Makes the error: of the path in the file and what is expected there, but never of a value. */
  fail: (problem: string) => Error;
  /** Whether the references in an object are left as they are, so that their variables need not be set. */
  skips?: (value: object) => boolean;
}

/**
 * Reads a JSON file of settings. `${NAME}` in a value is replaced by the variable NAME of `env`, so that the file needs
 * no secrets; the value is treated as a secret, and may be in the file NAME_FILE.
 */
export async function readSettingsFile<T>(
  file: string,
  { env, schema, fail, skips = () => false }: SettingsFileOptions<T>,
): Promise<T> {
  let content: unknown;
  try {
    content = JSON.parse(await readFile(file, 'utf8'));
  } catch (error) {
    throw fail(error instanceof SyntaxError ? notJson(error) : `cannot be read: ${String(error)}`);
  }
  const unset: string[] = [];
  const variable = (name: string, at: string): string => {
    const value = secretVariable(env, name);
    if (!value) unset.push(`${at}: ${name} is not set`);
    registerSecrets([value]);
    return value ?? '';
  };
  const parsed = schema.safeParse(interpolate(content, { variable, skips }), { error: namingUnknownKeys });
  if (unset.length > 0) throw fail(unset.join('\n'));
  if (parsed.success) return parsed.data;
  const problems = parsed.error.issues.map(({ path, message }) => `${path.join('.') || 'the file'}: ${message}`);
  throw fail(problems.join('\n'));
}

/** Omits the excerpt of the file that V8 includes, because it may contain a secret. */
function notJson({ message }: SyntaxError): string {
  const [where] = /\(line \d+ column \d+\)$/.exec(message) ?? [];
  return where === undefined ? 'is not JSON' : `is not JSON ${where}`;
}

interface Interpolation {
  variable: (name: string, at: string) => string;
  skips: (value: object) => boolean;
}

/** Replaces references to variables by what `variable` returns for their names and paths. */
function interpolate(value: unknown, how: Interpolation, path: string[] = []): unknown {
  if (typeof value === 'string') {
    return value.replaceAll(/\$\{(\w+)\}/g, (_, name: string) => how.variable(name, path.join('.')));
  }
  if (Array.isArray(value)) return value.map((item, i) => interpolate(item, how, [...path, String(i)]));
  if (typeof value !== 'object' || value === null || how.skips(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, interpolate(item, how, [...path, key])]));
}
