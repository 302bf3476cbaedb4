import path from 'node:path';
import { VARIABLE_NAME } from '../../../spec/kernel-env.ts';
import { baseEnvironment, folderEnvironment } from '../kernel/kernel-setup.ts';
import type { AllowedNetwork } from '../kernel/sandbox-network.ts';
import type { SandboxFolders } from '../kernel/sandbox-folders.ts';

/**
 * Variables by which the loader, libc and bash run code that is not in the command; and the backend of plots, which
 * works only in kernels.
 */
export const NOT_PASSED = /^(?:LD_|BASH|GLIBC_TUNABLES$|GCONV_PATH$|ENV$|SHELLOPTS$|PS4$|MPLBACKEND$)/;

/**
 * The environment of a command: the environment of the code that runs it, without changes by which something else than
 * the approved command would run. So its `PATH` can add folders, but not replace programs of the system.
 *
 * @param python the interpreter of the sandbox, which commands find as `python`
 * @param inside the folders of the sandbox, behind the wall
 */
export function commandEnvironment(
  given: Record<string, string>,
  { python, inside, network }: { python: string; inside: SandboxFolders; network: AllowedNetwork | undefined },
): Record<string, string> {
  const base = baseEnvironment({ network });
  const passed = Object.entries(given).filter(
    ([name, value]) => VARIABLE_NAME.test(name) && !NOT_PASSED.test(name) && !value.includes('\0'),
  );
  const programs = [path.dirname(python), base['PATH'], path.join(inside.home, '.local/bin'), given['PATH']];
  const folders = programs.flatMap((one) => one?.split(':') ?? []).filter((one) => path.isAbsolute(one));
  return {
    ...base,
    ...Object.fromEntries(passed),
    ...folderEnvironment(inside),
    PATH: [...new Set(folders)].join(':'),
  };
}
