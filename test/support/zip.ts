import { crc32, deflateRawSync } from 'node:zlib';

export interface ZipEntry {
  content: Buffer | string;
  /** The length of the content that the archive declares; default: its own. */
  claims?: number;
  encrypted?: true;
}

function entryOf(given: Buffer | string | ZipEntry): ZipEntry {
  return typeof given === 'string' || Buffer.isBuffer(given) ? { content: given } : given;
}

/** A ZIP archive with these entries, compressed. */
export function zipOf(entries: Record<string, Buffer | string | ZipEntry>): Buffer {
  const parts: Buffer[] = [];
  const directory: Buffer[] = [];
  let offset = 0;
  for (const [path, given] of Object.entries(entries)) {
    const { content, claims, encrypted } = entryOf(given);
    const bytes = Buffer.from(content);
    const packed = deflateRawSync(bytes);
    const name = Buffer.from(path);
    const common = Buffer.alloc(26);
    common.writeUInt16LE(20, 0);
    // UTF-8 names.
    common.writeUInt16LE(0x800 | (encrypted ? 1 : 0), 2);
    common.writeUInt16LE(8, 4);
    common.writeUInt32LE(crc32(bytes), 10);
    common.writeUInt32LE(packed.length, 14);
    common.writeUInt32LE(claims ?? bytes.length, 18);
    common.writeUInt16LE(name.length, 22);
    const position = Buffer.alloc(14);
    position.writeUInt32LE(offset, 10);
    parts.push(Buffer.from('PK\x03\x04'), common, name, packed);
    directory.push(Buffer.from('PK\x01\x02\x14\0'), common, position, name);
    offset += 4 + common.length + name.length + packed.length;
  }
  const central = Buffer.concat(directory);
  const end = Buffer.alloc(18);
  const count = Object.keys(entries).length;
  end.writeUInt16LE(count, 4);
  end.writeUInt16LE(count, 6);
  end.writeUInt32LE(central.length, 8);
  end.writeUInt32LE(offset, 12);
  return Buffer.concat([...parts, central, Buffer.from('PK\x05\x06'), end]);
}

/** A Word document with these paragraphs. */
export function docxOf(paragraphs: string[]): Buffer {
  const body = paragraphs.map((text) => `<w:p><w:r><w:t>${text}</w:t></w:r></w:p>`).join('');
  return docxWith(`<w:body>${body}</w:body>`);
}

/** A Word document with this XML. */
export function docxWith(xml: string | ZipEntry): Buffer {
  const document = (content: string) =>
    `<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main">${content}</w:document>`;
  const type = 'application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml';
  const relationships = 'http://schemas.openxmlformats.org/package/2006/relationships';
  const target = 'http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument';
  return zipOf({
    '[Content_Types].xml': `<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"><Override PartName="/word/document.xml" ContentType="${type}"/></Types>`,
    '_rels/.rels': `<Relationships xmlns="${relationships}"><Relationship Id="r1" Type="${target}" Target="word/document.xml"/></Relationships>`,
    'word/document.xml':
      typeof xml === 'string' ? document(xml) : { ...xml, content: document(xml.content.toString('utf8')) },
  });
}
