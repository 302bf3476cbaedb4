/**
 * A resource that takes time to prepare: the Python of kernels, the environment of a host, or the availability of
 * hosts. `reason` contains the missing requirement, and what an operator can do.
 */
export type Prepared<Ready> =
  | { state: 'building' }
  | ({ state: 'ready' } & Ready)
  | { state: 'failed'; reason: string };
