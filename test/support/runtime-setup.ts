import { pino } from 'pino';
import { installRuntime } from './temporal-runtime.ts';

// Before any test of the process: some start servers that install none, and the SDK would then use one of its own, which
// cannot be replaced by those that later files of the process install.
await installRuntime(pino({ level: 'silent' }));
