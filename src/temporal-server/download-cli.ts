/**
 * Downloads the CLI with Temporal's SDK into the folder that its argument names. It is a separate program because the
 * SDK's downloads cannot be cancelled, and because a download initializes the SDK's runtime for the whole process.
 *
 * The SDK downloads only in order to start a server; with `--help` the server does not start.
 */
import { TestWorkflowEnvironment } from '@temporalio/testing';
import { CLI_VERSION } from './cli-release.ts';

try {
  const [, , downloadDir = '.'] = process.argv;
  const executable = { type: 'cached-download', downloadDir, version: `v${CLI_VERSION}` } as const;
  await TestWorkflowEnvironment.createLocal({ server: { executable, extraArgs: ['--help'] } });
} catch (error) {
  // The message is a long chain of causes, each with the whole address; the last ones name the problem.
  console.error(String(error).split(': ').slice(-3).join(': '));
}
process.exit();
