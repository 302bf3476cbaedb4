import { NamedError } from '../../../lib/errors.ts';

/** The isolation of a kernel from the machine. */
export interface Wall {
  /**
   * `sandbox`: namespaces by bubblewrap, and inside them the same as `confined`. `confined`: Landlock, a filter of
   * system calls, and limits, which the kernel applies to itself. `none`: no isolation.
   */
  isolation: 'sandbox' | 'confined' | 'none';
  /** Whether each sandbox needs a user of its own, which owns its folders: true if this process is root. */
  hasOwnUser: boolean;
  /** The interpreter of the kernels. */
  python: string;
  /** The folders of the interpreter and its packages, except those below /usr. */
  pythonFolders: string[];
}

/**
 * Code has a network only behind the wall `sandbox`: without it, Linux could restrict code to the port of the proxy,
 * but not to a machine, so that code could reach any server on the internet that listens on this port.
 */
export const NO_NETWORK =
  'code can be kept to the hosts of network.allow only behind the wall of bubblewrap: install it on the kernel hosts, or ' +
  'omit network.allow';

/** Whether a wall can restrict code to some hosts of the network: see `NO_NETWORK`. */
export function limitsNetwork(isolation: Wall['isolation'] | null): boolean {
  return isolation === 'sandbox';
}

/** No kernel can be started on this machine. The message names the missing requirement. */
export class NoWall extends NamedError {}
