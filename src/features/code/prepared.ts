/**
 * What takes time to prepare: the Python of kernels, what a host starts them with, whether there is any host that does.
 * `reason` says what is missing, and what an operator can do about it.
 */
export type Prepared<Ready> =
  | { state: 'building' }
  | ({ state: 'ready' } & Ready)
  | { state: 'failed'; reason: string };
