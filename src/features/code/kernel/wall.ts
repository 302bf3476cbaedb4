import { NamedError } from '../../../lib/errors.ts';

/** What stands between a kernel and the machine. */
export interface Wall {
  /**
   * `sandbox`: namespaces by bubblewrap, and inside them what `confined` has. `confined`: Landlock, a filter of system calls,
   * and limits, which the kernel applies to itself. `none`: nothing.
   */
  isolation: 'sandbox' | 'confined' | 'none';
  /** Whether each sandbox needs a user of its own, which owns its folders: where this process is root. */
  hasOwnUser: boolean;
  /** The interpreter of the kernels. */
  python: string;
  /** The folders that the interpreter and its packages are in, except those below /usr. */
  pythonFolders: string[];
}

/**
 * Why no code has a network behind another wall than `sandbox`: Linux could keep it to one port, that of the proxy, but on all
 * machines, so that any server on the internet that listens on this port could be reached.
 */
export const NO_NETWORK =
  'code can be kept to the hosts of network.allow only behind the wall of bubblewrap: install it on the kernel hosts, or ' +
  'omit network.allow';

/** Whether a wall can keep code to some hosts of the network: see `NO_NETWORK`. */
export function limitsNetwork(isolation: Wall['isolation'] | null): boolean {
  return isolation === 'sandbox';
}

/** No kernel can be started on this machine. The message says what is missing. */
export class NoWall extends NamedError {}
