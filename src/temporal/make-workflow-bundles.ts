/** Run by the build of the images. */
import { makeWorkflowBundles } from './workflow-bundle.ts';

await makeWorkflowBundles();
