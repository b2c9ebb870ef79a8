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
// connection.
func Stall(after int, release <-chan struct{}) Fault {
	return func(w http.ResponseWriter, req *http.Request, serve http.HandlerFunc) {
		status, header, body := answer(req, serve)
		send(w, status, header, body[:min(after, len(body))])
		select {
		case <-release:
		case <-req.Context().Done():
		}
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
			time.Sleep(pause)
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
