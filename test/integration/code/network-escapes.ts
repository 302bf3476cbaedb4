/** Code that attempts share. `T` has the targets, and the environment names the proxy. */
export const NETWORK_PREAMBLE = `
import json, os, socket, urllib.request
T = json.loads(os.environ["TARGET"])
PROXY = os.environ["HTTP_PROXY"].removeprefix("http://").split(":")

def connects(family, address, kind=socket.SOCK_STREAM):
    with socket.socket(family, kind) as client:
        client.settimeout(2)
        client.connect(address)
        return True

def through(*lines, body=""):
    """What the proxy answers to a request, and to what follows on the same connection, until it ends or is silent."""
    answers = b""
    with socket.create_connection((PROXY[0], int(PROXY[1])), timeout=2) as client:
        client.sendall(("\\r\\n".join(lines) + "\\r\\n\\r\\n" + body).encode())
        try:
            while data := client.recv(65536):
                answers += data
        except TimeoutError:
            pass
    return answers.decode("latin1")

def gets(url, *fields, body="", host="localhost"):
    return through(f"GET {url} HTTP/1.1", f"Host: {host}", *fields, body=body)

def tunnels(target, text="ping"):
    return text in through(f"CONNECT {target} HTTP/1.1", f"Host: {target}", body=text).split("\\r\\n\\r\\n", 1)[1]

def tried(attempt):
    try:
        return bool(attempt())
    except BaseException as error:
        print(repr(error))
        return False
`;

/** Ways around the proxy. */
const DIRECT: Record<string, string> = {
  'service-of-loopback': `return connects(socket.AF_INET, ("127.0.0.1", T["port"]))`,
  'allowed-host-without-proxy': `return connects(socket.AF_INET, ("127.0.0.1", 443))`,
  'fast-open': `
    client = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    client.sendto(b"GET / HTTP/1.0\\r\\n\\r\\n", socket.MSG_FASTOPEN, ("127.0.0.1", T["port"]))
    return b"reached" in client.recv(4096)`,
  udp: `return socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", T["port"])) == 1`,
  'dns-query': `
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    client.settimeout(2)
    client.sendto(b"query", ("127.0.0.1", T["dns"]))
    return client.recv(16) == b"answer"`,
  'udp-for-ipv6': `return socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).fileno() >= 0`,
  'tcp-for-ipv6': `return socket.socket(socket.AF_INET6, socket.SOCK_STREAM).fileno() >= 0`,
  'raw-packets': `return socket.socket(socket.AF_PACKET, socket.SOCK_RAW).fileno() >= 0`,
  'raw-ip': `return socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP).fileno() >= 0`,
  netlink: `return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).fileno() >= 0`,
  'listen-tcp': `
    socket.create_server(("127.0.0.1", 0)).close()
    return True`,
  'unix-socket-of-host': `return connects(socket.AF_UNIX, T["socket"])`,
  'abstract-socket-of-host': `return connects(socket.AF_UNIX, "\\0" + T["abstract"])`,
  'proxy-of-another-sandbox': `return connects(socket.AF_UNIX, T["otherProxy"])`,
};

/** Ways through the proxy, to what the agent does not allow. */
const THROUGH: Record<string, string> = {
  'other-host': `return "reached" in gets("http://other.test/")`,
  'other-host-in-a-tunnel': `return tunnels("other.test:443")`,
  'name-that-begins-like-it': `return "reached" in gets("http://localhost.other.test/")`,
  'name-that-ends-like-it': `return "reached" in gets("http://other-localhost/")`,
  'as-a-user': `return "reached" in gets("http://localhost@other.test/")`,
  'as-a-user-in-a-tunnel': `return tunnels("localhost@other.test:443")`,
  'other-port': `return "reached" in gets(f"http://localhost:{T['port']}/")`,
  'other-port-in-a-tunnel': `
    body = "GET / HTTP/1.0\\r\\n\\r\\n"
    return "reached" in through(f"CONNECT localhost:{T['port']} HTTP/1.1", "Host: localhost", body=body)`,
  'port-of-http-in-a-tunnel': `
    body = "GET / HTTP/1.0\\r\\n\\r\\n"
    return "reached" in through("CONNECT localhost:80 HTTP/1.1", "Host: localhost", body=body)`,
  'port-of-https-by-http': `return "GET / HTTP" in gets("http://localhost:443/")`,
  address: `return "reached" in gets("http://127.0.0.1/")`,
  'address-in-a-tunnel': `return tunnels("127.0.0.1:443")`,
  'address-as-a-number': `return "reached" in gets("http://2130706433/")`,
  'short-address': `return "reached" in gets("http://127.1/")`,
  'address-mapped-into-ipv6': `return "reached" in gets("http://[::ffff:127.0.0.1]/")`,
  'mapped-address-in-a-tunnel': `return tunnels("[::ffff:127.0.0.1]:443")`,
  redirect: `return b"reached GET other.test" in urllib.request.urlopen("http://localhost/redirect", timeout=5).read()`,
  'host-field': `return "reached GET other.test" in gets("http://localhost/", "Connection: close", host="other.test")`,
  'next-request-of-the-connection': `
    return "reached GET other.test" in gets("http://localhost/", body="GET http://other.test/ HTTP/1.1\\r\\nHost: other.test\\r\\n\\r\\n")`,
  'two-lengths': `
    smuggled = "0\\r\\n\\r\\nGET / HTTP/1.1\\r\\nHost: other.test\\r\\n\\r\\n"
    fields = f"Content-Length: {len(smuggled)}", "Transfer-Encoding: chunked"
    return "reached GET other.test" in gets("http://localhost/", *fields, body=smuggled)`,
  'length-that-is-dropped': `
    smuggled = "GET / HTTP/1.1\\r\\nHost: other.test\\r\\n\\r\\n"
    fields = "Connection: content-length", f"Content-Length: {len(smuggled)}"
    return "reached GET other.test" in gets("http://localhost/", *fields, body=smuggled)`,
  'request-in-a-field': `
    return "reached GET other.test" in gets("http://localhost/", "A: b\\nHost: other.test\\n\\nGET / HTTP/1.1\\nHost: other.test")`,
  'request-in-the-path': `
    return "reached GET other.test" in gets("http://localhost/ HTTP/1.1\\r\\nHost: other.test\\r\\n\\r\\nGET /")`,
  'key-of-the-proxy': `return "Basic" in gets("http://localhost/echo", "Proxy-Authorization: Basic eA==")`,
};

export const NETWORK_ESCAPES = Object.entries({ ...DIRECT, ...THROUGH }).map(([id, code]) => ({
  id,
  code: code.startsWith('\n') ? code.slice(1) : `    ${code}`,
}));

const connects = (kind: string, port: string) =>
  `python -c 'import os, socket; socket.socket(socket.AF_INET, socket.${kind}).connect(("127.0.0.1", int(os.environ["${port}"])))'`;

/** The same from a command: bodies of a function of bash. `T_*` are the targets. */
export const NETWORK_COMMAND_ESCAPES = Object.entries({
  'connect-by-bash': `: > "/dev/tcp/127.0.0.1/$T_port"`,
  'send-by-bash': `echo x > "/dev/udp/127.0.0.1/$T_port"`,
  'connect-without-proxy': connects('SOCK_STREAM', 'T_port'),
  'connect-a-datagram-socket': connects('SOCK_DGRAM', 'T_dns'),
  'curl-without-proxy': `curl --fail --silent --noproxy '*' "http://127.0.0.1:$T_port/"`,
  'curl-other-host': `curl --fail --silent http://other.test/`,
  'curl-in-a-tunnel': `curl --fail --silent --proxytunnel "http://localhost:$T_port/"`,
  'curl-redirect': `curl --fail --silent --location http://localhost/redirect`,
  'curl-unix-socket-of-host': `curl --silent --unix-socket "$T_otherProxy" http://localhost/; [ $? != 7 ]`,
}).map(([id, body]) => ({ id, body }));
