import { fc } from '../support/fast-check.ts';

// Any counterexample notices a mutant: to find the smallest one takes many more runs.
fc.configureGlobal({ ...fc.readConfigureGlobal(), endOnFailure: true });
