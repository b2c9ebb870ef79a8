// Command guestbook is the program of docs/TUTORIAL.md: a guestbook in two parts that find each other by name.
//
//	guestbook web               what visitors see: a page for browsers, plain text for others, at port 8080; $TITLE is above it
//	guestbook store             keeps the entries in the file entries of $DATA; $STORE is where web reaches it, by default http://store
//	guestbook get URL           prints what is answered
//	guestbook sign URL MESSAGE  writes something; it waits while nobody answers
//
// Where the store's container has the device /dev/dice, each entry gets a number that is thrown with it.
//
// web and store end with status 0, at once, when they get SIGTERM or SIGINT.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

const (
	address = ":8080"
	// patience is how long a part waits for the other one.
	patience = 5 * time.Second
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "guestbook:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	switch {
	case len(args) == 1 && args[0] == "web":
		me, err := os.Hostname()
		if err != nil {
			return err
		}
		return serve(ctx, (&web{title: setting("TITLE", "Guestbook"), store: setting("STORE", "http://store"), me: me}).handler())
	case len(args) == 1 && args[0] == "store":
		s, err := openStore(setting("DATA", "/data"), "/dev/dice")
		if err != nil {
			return err
		}
		return errors.Join(serve(ctx, s.handler()), s.close())
	case len(args) == 2 && args[0] == "get":
		return get(ctx, args[1], os.Stdout)
	case len(args) == 3 && args[0] == "sign":
		return sign(ctx, args[1], args[2], os.Stdout)
	}
	return errors.New("use web, store, get URL or sign URL MESSAGE")
}

// setting is a variable of the environment, or what it is without one.
func setting(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}

// serve serves until it is told to stop.
func serve(ctx context.Context, h http.Handler) error {
	server := &http.Server{Addr: address, Handler: h, ReadTimeout: patience, WriteTimeout: 3 * patience, IdleTimeout: time.Minute}
	failed := make(chan error, 1)
	go func() { failed <- server.ListenAndServe() }()
	fmt.Println("serving at", address)
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return server.Close()
	}
}

// sign writes a message. While nobody answers it asks again, for a minute.
func sign(ctx context.Context, to, message string, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, strings.NewReader(url.Values{"message": {message}}.Encode()))
		if err != nil {
			return err
		}
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		if err = tell(req, out); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(patience / 10):
		}
	}
}

// get prints what is answered.
func get(ctx context.Context, from string, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, 3*patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return err
	}
	return tell(req, out)
}

// tell prints the answer to a request, unless it is a refusal.
func tell(req *http.Request, out io.Writer) error {
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(io.LimitReader(resp.Body, 1024))
		return fmt.Errorf("%s answers %s: %s", req.URL, resp.Status, strings.TrimSpace(string(said)))
	}
	_, err = io.Copy(out, resp.Body)
	return err
}
