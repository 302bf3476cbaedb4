import { trace } from '@opentelemetry/api';
import { pino } from 'pino';
import { expect, onTestFinished, test, vi } from 'vitest';
import { freePort } from '../lib/processes.ts';
import { startTracing } from './tracing.ts';

test('an unavailable collector does not prevent the process from stopping', async () => {
  vi.stubEnv('OTEL_EXPORTER_OTLP_ENDPOINT', `http://127.0.0.1:${await freePort()}`);
  vi.stubEnv('OTEL_EXPORTER_OTLP_TIMEOUT', '200');
  onTestFinished(() => void vi.unstubAllEnvs());
  const logged: string[] = [];
  const tracing = startTracing(pino({}, { write: (line) => void logged.push(line) }));
  trace.getTracer('test').startSpan('work').end();
  await tracing.stop();
  expect(logged.at(-1)).toContain('"msg":"the last traces could not be sent"');
});
