package registry

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strconv"
	"time"
)

// Fault answers a request in place of the registry. serve is what the registry would do.
type Fault func(w http.ResponseWriter, req *http.Request, serve http.HandlerFunc)

// Status answers with a status and header fields, given as names and values in turn.
func Status(code int, header ...string) Fault {
	return Refuse(code, "", "", header...)
}

// Refuse is Status with an error of the distribution specification.
func Refuse(status int, code, message string, header ...string) Fault {
	return func(w http.ResponseWriter, _ *http.Request, _ http.HandlerFunc) {
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		if code == "" {
			w.WriteHeader(status)
			return
		}
		refuse(w, status, code, message)
	}
}

// Hangup breaks the connection before it answers.
func Hangup() Fault {
	return func(http.ResponseWriter, *http.Request, http.HandlerFunc) { panic(http.ErrAbortHandler) }
}

// Cut breaks the connection after so many bytes of the body.
func Cut(after int) Fault {
	return func(w http.ResponseWriter, req *http.Request, serve http.HandlerFunc) {
		status, header, body := answer(req, serve)
		send(w, status, header, body[:min(after, len(body))])
		if after < len(body) {
			panic(http.ErrAbortHandler)
		}
	}
}

// Stall sends so many bytes of the body and then nothing, until the client goes or release is closed, which ends the
// connection. HEAD, which has no body, is answered.
func Stall(after int, release <-chan struct{}) Fault {
	return func(w http.ResponseWriter, req *http.Request, serve http.HandlerFunc) {
		if req.Method == http.MethodHead {
			serve(w, req) // the next request would come on this connection, and hide that the client goes
			return
		}
		status, header, body := answer(req, serve)
		send(w, status, header, body[:min(after, len(body))])
		select {
		case <-release:
		case <-req.Context().Done():
		}
		panic(http.ErrAbortHandler)
	}
}

// Hang sends nothing, until the client goes.
func Hang() Fault {
	return func(_ http.ResponseWriter, req *http.Request, _ http.HandlerFunc) {
		<-req.Context().Done()
		panic(http.ErrAbortHandler)
	}
}

// Corrupt turns a bit of the byte at the offset of the body, if it is so long.
func Corrupt(at int) Fault {
	return Change(func(body []byte) []byte {
		body = bytes.Clone(body)
		if at < len(body) {
			body[at] ^= 1
		}
		return body
	})
}

// Change replaces the body, and says its new length.
func Change(change func([]byte) []byte) Fault {
	return func(w http.ResponseWriter, req *http.Request, serve http.HandlerFunc) {
		status, header, body := answer(req, serve)
		if req.Method != http.MethodHead {
			body = change(body)
			header.Set("Content-Length", strconv.Itoa(len(body)))
		}
		send(w, status, header, body)
	}
}

// IgnoreRange sends the whole body whatever part was asked for.
func IgnoreRange() Fault {
	return func(w http.ResponseWriter, req *http.Request, serve http.HandlerFunc) {
		req.Header.Del("Range")
		serve(w, req)
	}
}

// Slow sends the body in pieces, with a pause after each.
func Slow(piece int, pause time.Duration) Fault {
	return func(w http.ResponseWriter, req *http.Request, serve http.HandlerFunc) {
		status, header, body := answer(req, serve)
		send(w, status, header, nil)
		for len(body) > 0 && req.Context().Err() == nil {
			n := min(piece, len(body))
			if _, err := w.Write(body[:n]); err != nil {
				return
			}
			w.(http.Flusher).Flush()
			body = body[n:]
			time.Sleep(pause) //nolint:forbidigo // a slow registry is what it plays
		}
	}
}

// Redirect sends the client to the same path of another server, or of this one: 307, or the status.
func Redirect(base string, status int) Fault {
	return func(w http.ResponseWriter, req *http.Request, _ http.HandlerFunc) {
		w.Header().Set("Location", base+req.URL.RequestURI())
		w.WriteHeader(status)
	}
}

// Answer answers something else.
func Answer(status int, contentType, body string) Fault {
	return func(w http.ResponseWriter, _ *http.Request, _ http.HandlerFunc) {
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		w.WriteHeader(status)
		w.Write([]byte(body)) //nolint:errcheck // the client may be gone
	}
}

// Header sets fields of the answer, given as names and values in turn; an empty value takes the field out.
func Header(header ...string) Fault {
	return func(w http.ResponseWriter, req *http.Request, serve http.HandlerFunc) {
		status, h, body := answer(req, serve)
		for i := 0; i+1 < len(header); i += 2 {
			if header[i+1] == "" {
				h[http.CanonicalHeaderKey(header[i])] = nil // also what the server would set by itself
			} else {
				h.Set(header[i], header[i+1])
			}
		}
		send(w, status, h, body)
	}
}

// Chunked sends the body without saying how long it is.
func Chunked() Fault { return Header("Content-Length", "") }

// Endless goes on sending until the client goes.
func Endless() Fault {
	return func(w http.ResponseWriter, req *http.Request, serve http.HandlerFunc) {
		status, h, body := answer(req, serve)
		h.Del("Content-Length")
		send(w, status, h, body)
		filler := bytes.Repeat([]byte(" "), 32<<10)
		for req.Context().Err() == nil && req.Method != http.MethodHead {
			if _, err := w.Write(filler); err != nil {
				return
			}
		}
	}
}

// Do runs f and then lets the registry answer.
func Do(f func(req *http.Request)) Fault {
	return func(w http.ResponseWriter, req *http.Request, serve http.HandlerFunc) {
		f(req)
		serve(w, req)
	}
}

func answer(req *http.Request, serve http.HandlerFunc) (int, http.Header, []byte) {
	rec := httptest.NewRecorder()
	serve(rec, req)
	return rec.Code, rec.Header(), rec.Body.Bytes()
}

func send(w http.ResponseWriter, status int, header http.Header, body []byte) {
	for k, v := range header {
		w.Header()[k] = v
	}
	w.WriteHeader(status)
	w.Write(body) //nolint:errcheck // the client may be gone, which is its business
	w.(http.Flusher).Flush()
}
