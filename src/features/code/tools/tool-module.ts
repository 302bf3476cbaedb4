import { docstring, pythonLiteral, pythonString } from './python-literals.ts';
import { isKeyword, unusedName } from './python-names.ts';
import { ModuleModels, type Model, type Property } from './schema-models.ts';

/** A tool that code can call. */
export interface CodeTool {
  server: string;
  name: string;
  description?: string | undefined;
  inputSchema: unknown;
  outputSchema?: unknown;
}

/** Attributes that pydantic's models have, and names that annotations use. */
const NOT_FIELDS = new Set(
  (
    'construct copy dict from_orm json parse_file parse_obj parse_raw schema schema_json update_forward_refs validate ' +
    'model_computed_fields model_config model_construct model_copy model_dump model_dump_json model_extra model_fields ' +
    'model_fields_set model_json_schema model_parametrized_name model_post_init model_rebuild model_validate ' +
    'model_validate_json model_validate_strings Any Field Literal Model None bool float frozenset int list str'
  ).split(' '),
);
/** The maximum characters of descriptions. */
export const MAX_DESCRIPTION = 10_000;
const MAX_FIELD_DESCRIPTION = 1000;
const MAX_FIELD_NAME = 100;
const MAX_SOURCE_LENGTH = 256 * 1024;
const MAX_SIGNATURE_LENGTH = 1000;

/**
 * The module of a tool, and the signature of its `run`.
 * @param parser the module of a saved tool that parses the text of the result
 */
export function toolModule(tool: CodeTool, parser?: string): { source: string; signature: string } {
  const module = moduleOf(tool);
  const { source, signature } = module.source.length <= MAX_SOURCE_LENGTH ? module : moduleOf(withAnyArguments(tool));
  return { source: parser === undefined ? source : `${source}${parsing(parser)}`, signature };
}

/** The code that parses results. The parser may be broken, so it is imported on first use: calls work without it. */
function parsing(parser: string): string {
  return `

def run_parsed(params: Params) -> ParseResult:
    """Calls the tool, and parses its text."""
    from ${parser} import parse

    return parse(call(_TOOL, (Params, None), params))


async def run_parsed_async(params: Params) -> ParseResult:
    """Calls the tool together with other tasks, and parses its text."""
    from ${parser} import parse

    return parse(await call_async(_TOOL, (Params, None), params))


def __getattr__(name):
    if name != "ParseResult":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ${parser} import ParseResult

    return ParseResult
`;
}

/** A form of the tool with any arguments, which only its server checks. */
function withAnyArguments({ server, name, outputSchema }: CodeTool): CodeTool {
  return { server, name, inputSchema: {}, ...(outputSchema !== undefined && { outputSchema: {} }) };
}

function moduleOf(tool: CodeTool): { source: string; signature: string } {
  const { server, name, description = '', inputSchema, outputSchema } = tool;
  const module = new ModuleModels();
  // A schema without properties accepts any arguments.
  if (module.add(inputSchema, 'Params', { isInput: true }) !== 'Params') {
    module.models.push({ name: 'Params', description: undefined, properties: [], isOpen: true });
  }
  const result = outputSchema === undefined ? undefined : module.add(outputSchema, 'Result', { isInput: false });
  if (module.isTooLong) return moduleOf(withAnyArguments(tool));
  const returns = result === undefined ? 'str' : 'Result';
  const about = description.trim().slice(0, MAX_DESCRIPTION) || `The tool ${name}.`;
  const classNames = new Set(module.models.map((model) => model.name));
  const params = module.models.find((model) => model.name === 'Params');
  const source = [
    docstring(about, ''),
    '',
    'from __future__ import annotations',
    '',
    'from typing import Any, Literal',
    '',
    'from everturn_kernel.tool_calls import Model, call, call_async',
    'from pydantic import Field',
    '',
    ...module.models.flatMap((model) => ['', ...classOf(model, classNames), '']),
    ...(result === undefined || result === 'Result' ? [] : ['', `Result = ${result}`, '']),
    '',
    `_TOOL = (${pythonString(server)}, ${pythonString(name)})`,
    `_MODELS = (Params, ${result === undefined ? 'None' : 'Result'})`,
    '',
    '',
    `def run(params: Params) -> ${returns}:`,
    '    """Calls the tool, and waits for its result."""',
    '    return call(_TOOL, _MODELS, params)',
    '',
    '',
    `async def run_async(params: Params) -> ${returns}:`,
    '    """Calls the tool together with other tasks, and awaits its result."""',
    '    return await call_async(_TOOL, _MODELS, params)',
    '',
  ].join('\n');
  return { source, signature: `run(${signatureOf(params, classNames)}) -> ${returns}` };
}

function classOf({ name, description, properties, isOpen }: Model, classNames: ReadonlySet<string>): string[] {
  const fields = fieldsOf(properties, classNames);
  // In Python, None stands for an omitted argument.
  const optional = properties.filter(({ isRequired, isNullable }) => !isRequired && !isNullable);
  const optionalNames = optional.map((property) => pythonString(property.name)).join(', ');
  return [
    `class ${name}(Model):`,
    ...(description === undefined ? [] : [docstring(description.slice(0, MAX_FIELD_DESCRIPTION), '    '), '']),
    `    model_config = {"extra": "${isOpen ? 'allow' : 'forbid'}"}`,
    ...(optional.length > 0 ? [`    __optional__ = frozenset({${optionalNames}})`] : []),
    ...fields.map(({ field, property }) => `    ${field}: ${annotationOf(property)}${valueOf(field, property)}`),
  ];
}

function annotationOf({ type, isRequired, isNullable }: Property): string {
  return isRequired || isNullable ? type : `${type} | None`;
}

function valueOf(field: string, { name, isRequired, initial, description }: Property): string {
  const options = [
    ...(isRequired ? [] : [`default=${pythonLiteral(initial)}`]),
    ...(field === name ? [] : [`alias=${pythonString(name)}`]),
    ...(description === undefined ? [] : [`description=${pythonString(description.slice(0, MAX_FIELD_DESCRIPTION))}`]),
  ];
  if (options.length === 0) return '';
  return !isRequired && options.length === 1 ? ` = ${pythonLiteral(initial)}` : ` = Field(${options.join(', ')})`;
}

/** The properties with their names in Python. Valid Python names are kept. */
function fieldsOf(properties: Property[], classNames: ReadonlySet<string>): { field: string; property: Property }[] {
  const isFree = (name: string): boolean =>
    /^[A-Za-z][A-Za-z0-9_]*$/.test(name) &&
    name.length <= MAX_FIELD_NAME &&
    !isKeyword(name) &&
    !NOT_FIELDS.has(name) &&
    !classNames.has(name);
  const used = new Set([...properties.map(({ name }) => name).filter(isFree), ...NOT_FIELDS, ...classNames]);
  return properties.map((property) => {
    if (isFree(property.name)) return { field: property.name, property };
    const field = unusedName(fieldName(property.name), used);
    used.add(field);
    return { field, property };
  });
}

/** The name of a field for pydantic, which must begin with a letter. */
function fieldName(name: string): string {
  const word = name
    .slice(0, MAX_FIELD_NAME)
    .replaceAll(/[^A-Za-z0-9_]/g, '_')
    .replace(/^_+/, '');
  if (!/^[A-Za-z]/.test(word)) return `field_${word}`;
  return word === name ? `${word}_` : word;
}

function signatureOf(params: Model | undefined, classNames: ReadonlySet<string>): string {
  const fields = fieldsOf(params?.properties ?? [], classNames).map(({ field, property }) => {
    const initial = property.isRequired ? '' : ` = ${pythonLiteral(property.initial)}`;
    return `${field}: ${annotationOf(property)}${initial}`;
  });
  const text = `Params(${fields.join(', ')})`;
  return text.length > MAX_SIGNATURE_LENGTH ? `${text.slice(0, MAX_SIGNATURE_LENGTH)}…)` : text;
}
