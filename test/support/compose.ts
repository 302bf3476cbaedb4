import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { parse } from 'yaml';

const run = promisify(execFile);

/** The fields of a service that the tests read. Durations are such as `1m30s`. */
export interface Service {
  image: string;
  command?: string[];
  environment?: Record<string, string>;
  ports?: string[];
  /** `<volume or path>:<path in the container>:<mode>` */
  volumes?: string[];
  tmpfs?: string[];
  healthcheck?: { test: string[]; interval: string };
  depends_on?: Record<string, { condition: string }>;
  cap_drop?: string[];
  security_opt?: string[];
  read_only?: boolean;
  user?: string;
  init?: boolean;
  logging?: { options: Record<string, string> };
  mem_limit?: string | number;
  pids_limit?: number;
  stop_grace_period?: string;
  profiles?: string[];
}

/**
 * The services of the Compose file in a folder, those of its profiles included, as Compose's own tool reads it with the
 * `.env` and the override file beside it.
 */
export async function readCompose(folder: string): Promise<Record<string, Service>> {
  const { PATH = '' } = process.env;
  const options = { cwd: folder, env: { PATH } };
  const [command = '', ...args] = await run('docker', ['compose', 'version']).then(
    () => ['docker', 'compose'],
    () => ['docker-compose'],
  );
  const { stdout } = await run(command, [...args, '--profile', 'kernels', 'config'], options);
  return (parse(stdout) as { services: Record<string, Service> }).services;
}
