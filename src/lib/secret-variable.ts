import { readFileSync } from 'node:fs';
import { errorMessage, StartupError } from './errors.ts';

/**
 * The value of an environment variable that holds a secret: its own, or the content of the file that `<name>_FILE` names,
 * as Docker and Kubernetes mount secrets, without the line break at its end. Undefined if neither is set; an empty
 * variable counts as unset.
 * @throws StartupError if both are set, or the file cannot be read or is empty
 */
export function secretVariable(env: NodeJS.ProcessEnv, name: string): string | undefined {
  const [value, file] = [env[name], env[`${name}_FILE`]];
  if (!file) return value || undefined;
  if (value) throw new StartupError(`${name} and ${name}_FILE are both set: set only one of them`);
  const content = readSecret(file, `${name}_FILE`).replace(/\r?\n$/, '');
  if (!content) throw new StartupError(`${name}_FILE: ${file} is empty`);
  return content;
}

function readSecret(file: string, name: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    throw new StartupError(`${name} must be a file that this process can read: ${errorMessage(error)}`, {
      cause: error,
    });
  }
}
