/** Where the native part of Temporal's SDK serves its metrics, for this process only; undefined without a worker. */
let metricsUrl: string | undefined;

const TIMEOUT_MS = 2_000;

/** Sets the address of the metrics. Called when the SDK's runtime is installed. */
export function servesTemporalMetrics(url: string): void {
  metricsUrl = url;
}

/** The metrics of the SDK in this process, in the text format of Prometheus; empty in an API, which has no worker. */
export async function temporalMetrics(): Promise<string> {
  if (metricsUrl === undefined) return '';
  const response = await fetch(metricsUrl, { signal: AbortSignal.timeout(TIMEOUT_MS) });
  return response.text();
}
