/**
 * Has Temporal's SDK download the CLI into the folder that is the argument. It is a program of its own because a
 * download by the SDK can't be given up, and because asking for one settles how the SDK runs in the process that asks.
 *
 * The SDK downloads only in order to start a server; with `--help` that does not start.
 */
import { TestWorkflowEnvironment } from '@temporalio/testing';

try {
  const [, , downloadDir = '.'] = process.argv;
  const executable = { type: 'cached-download', downloadDir } as const;
  await TestWorkflowEnvironment.createLocal({ server: { executable, extraArgs: ['--help'] } });
} catch (error) {
  // A long chain of causes, each with the whole address; the last ones tell what is wrong.
  console.error(String(error).split(': ').slice(-3).join(': '));
}
process.exit();
