import { becomeWorkflowThread, globalHandlers } from './sdk-worker-internals.ts';

/**
 * The entry point of a workflow thread without stack traces: the SDK's own, except that no hook records the stack of each
 * promise. That hook is a sixth of the thread's processor time, and serves only the query `__stack_trace`, which the SDK
 * then rejects as not enabled. The SDK installs the hook with its first message, which arrives after this module has run.
 */
Object.assign(globalHandlers, { setPromiseHook: () => undefined });
await becomeWorkflowThread();
