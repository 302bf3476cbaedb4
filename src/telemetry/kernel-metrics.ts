import { Counter, Gauge, Histogram, type Registry } from 'prom-client';

/** Seconds: a start takes half a second on a quiet machine, and a minute at most. */
const START_BUCKETS = [0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60];

/** The states of kernels that run. */
type KernelStatus = 'ready' | 'busy' | 'suspended';

/** The metrics of a kernel host, beside those that all processes have. */
export class KernelMetrics {
  readonly cells: Counter<'exit'>;
  readonly starts: Histogram;
  readonly restarts: Counter<'reason'>;
  readonly evictions: Counter;

  /** @param statuses returns the current statuses of the kernels that run */
  constructor(registry: Registry, statuses: () => Promise<KernelStatus[]>) {
    const registers = [registry];
    this.cells = new Counter({
      name: 'everturn_cells_ended_total',
      help: 'Cells that have ended on this host, by exit',
      labelNames: ['exit'],
      registers,
    });
    this.starts = new Histogram({
      name: 'everturn_kernel_start_seconds',
      help: 'Time until a kernel is ready for its first cell',
      buckets: START_BUCKETS,
      registers,
    });
    this.restarts = new Counter({
      name: 'everturn_kernel_restarts_total',
      help: 'Kernels that have replaced one whose variables are lost, by the reason for which it ended',
      labelNames: ['reason'],
      registers,
    });
    this.evictions = new Counter({
      name: 'everturn_kernel_evictions_total',
      help: 'Unused kernels that were stopped because this host or their subject had as many as allowed',
      registers,
    });
    const kernels = new Gauge({
      name: 'everturn_kernels',
      help: 'Kernels that run on this host, by state',
      labelNames: ['state'],
      registers,
      collect: async () => {
        const now = await statuses();
        for (const state of ['ready', 'busy', 'suspended'] as const) {
          kernels.set({ state }, now.filter((status) => status === state).length);
        }
      },
    });
  }
}
