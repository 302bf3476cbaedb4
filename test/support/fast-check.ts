import fc from 'fast-check';

// Without it a `maxLength` is a bound that nothing comes near: texts and lists have about ten elements.
fc.configureGlobal({ ...fc.readConfigureGlobal(), defaultSizeToMaxWhenMaxSpecified: true });

export { default as fc } from 'fast-check';
