import type { Readiness } from './readiness.ts';
import type { Services } from './services.ts';
import { temporalMetrics } from '../telemetry/temporal-runtime.ts';
import { Workload } from './operations.ts';

export interface Scraped {
  contentType: string;
  text: string;
}

export type Scrape = () => Promise<Scraped>;

/** All metrics of a process: ours, those of Node, and those of Temporal's SDK. */
export function createScrape(services: Services & { readiness: Readiness }): Scrape {
  const { metrics, readiness, log } = services;
  const workload = new Workload({ ...services, taskQueue: services.config.temporal.taskQueue });
  return async () => {
    const theirs = temporalMetrics().catch((error: unknown) => {
      log.warn({ err: error }, "the metrics of Temporal's SDK can not be read");
      return '';
    });
    await Promise.all([workload.refresh(), readiness.check()]);
    const { registry } = metrics;
    // The library writes it in its own way.
    const ours = (await registry.metrics()).replaceAll(/ Nan$/gm, ' NaN');
    return { contentType: registry.contentType, text: ours + (await theirs) };
  };
}
