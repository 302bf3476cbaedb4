import type { ProvisionedTemporal } from '../src/temporal-server/provision.ts';
import type { EverturnProcess } from './everturn-process.ts';

/** Everturn in its own processes, as in production, on a Temporal server that the baseline's workflows also use. */
export interface Deployment {
  url: string;
  temporal: Pick<ProvisionedTemporal, 'connectionOptions' | 'namespace'>;
  /** The process that readers are connected to comes first. */
  processes: [EverturnProcess, ...EverturnProcess[]];
}
