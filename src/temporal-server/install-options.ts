import type { Logger } from 'pino';
import { NamedError } from '../lib/errors.ts';

export interface InstallOptions {
  /** An empty folder that gets the program. */
  folder: string;
  env: NodeJS.ProcessEnv;
  log: Logger;
}

/** An installer needs a program that is not on PATH. */
export class MissingProgramError extends NamedError {
  /** What the operator can do about it, as an imperative. */
  readonly remedy: string;

  constructor(message: string, remedy: string) {
    super(message);
    this.remedy = remedy;
  }
}

export function secondsText(ms: number): string {
  return `${Math.round(ms / 1000)} s`;
}
