import { setWorkflowOptions } from '@temporalio/workflow';
import { turn } from './index.ts';

export * from './index.ts';

// The workflows of workers that have a version; Temporal rejects this option from other workers. A turn stays with the
// version that started it, its next runs included; the worker's default, for all other workflows, is to follow the
// current version.
setWorkflowOptions({ versioningBehavior: 'PINNED' }, turn);
