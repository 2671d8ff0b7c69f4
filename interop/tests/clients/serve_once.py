"""Serves one request with the standard library's server, at a port that it prints first."""

import http.server


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        page = f"this is {self.path}\n".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)


server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
server.timeout = 50
print(server.server_address[1], flush=True)
server.handle_request()
