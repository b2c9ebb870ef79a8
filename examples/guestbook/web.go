package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"net/http"
	"net/url"
	"strings"
	texttemplate "text/template"
)

var (
	//go:embed page.html
	pageHTML string
	page     = template.Must(template.New("page").Parse(pageHTML))

	plain = texttemplate.Must(texttemplate.New("plain").Parse(`{{.Title}} (this is {{.Me}})
{{range .Entries}}  {{if .Dice}}[{{.Dice}}] {{end}}{{.Message}}
{{end}}{{with .Problem}}  the store does not answer: {{.}}
{{end}}`))
)

// web shows what the store has.
type web struct {
	title, store, me string
}

// view is what a visitor sees.
type view struct {
	Title, Me, Problem string
	Entries            []entry
}

func (s *web) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		v := view{Title: s.title, Me: s.me}
		if err := s.ask(r.Context(), http.MethodGet, nil, &v.Entries); err != nil {
			v.Problem = err.Error()
		}
		if browser(r) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			_ = page.Execute(w, v)
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_ = plain.Execute(w, v)
	})
	mux.HandleFunc("POST /{$}", func(w http.ResponseWriter, r *http.Request) {
		var e entry
		if err := s.ask(r.Context(), http.MethodPost, url.Values{"message": {r.PostFormValue("message")}}, &e); err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		if browser(r) {
			http.Redirect(w, r, "/", http.StatusSeeOther)
			return
		}
		_, _ = io.WriteString(w, "thank you\n")
	})
	mux.HandleFunc("GET /healthz", healthy)
	return http.MaxBytesHandler(mux, 8*maxMessage)
}

// browser says whether a request is a browser's.
func browser(r *http.Request) bool { return strings.Contains(r.Header.Get("Accept"), "text/html") }

// ask asks the store.
func (s *web) ask(ctx context.Context, method string, form url.Values, into any) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, s.store+"/entries", strings.NewReader(form.Encode()))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusBadRequest {
		said, _ := io.ReadAll(io.LimitReader(resp.Body, 1024))
		return fmt.Errorf("%s: %s", resp.Status, strings.TrimSpace(string(said)))
	}
	return json.NewDecoder(resp.Body).Decode(into)
}
