export { deleteSession } from './delete-session.ts';
export { dispatchProbe } from './dispatch-probe.ts';
export { scheduledRun } from './scheduled-run.ts';
export { session } from './session.ts';
export { turn } from './turn.ts';
