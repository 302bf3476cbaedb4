import fc from 'fast-check';

// Any counterexample notices a mutant: to find the smallest one takes many more runs.
fc.configureGlobal({ endOnFailure: true });
