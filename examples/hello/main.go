// Command hello is the program of the example pod. As `hello` it tells what it was given (the part of its environment
// that matters here, and the device that CDI put into its container) and then serves it over HTTP; as `hello watch` it
// is the pod's second container, which asks the first one over the network namespace that they share. `hello show` tells and
// ends; `hello ask URL` prints what somebody else answers, and ends.
//
// It ends with status 0, at once, when it gets SIGTERM or SIGINT.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	defaultPort = "8080"
	// devices is where the example's CDI spec puts its devices.
	devices = "/dev/widget*"
	// quiet is how often a line says that all is well.
	quiet = 30 * time.Second
	// patience is how long ask waits for an answer.
	patience = time.Minute
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	port := os.Getenv("PORT")
	if port == "" {
		port = defaultPort
	}
	run, whom := serve, port
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "watch":
			run = watch
		case "show":
			fmt.Print(report())
			return
		case "ask":
			if len(os.Args) != 3 {
				fmt.Fprintln(os.Stderr, "hello: ask whom? use ask URL")
				os.Exit(2)
			}
			run, whom = ask, os.Args[2]
		default:
			fmt.Fprintf(os.Stderr, "hello: unknown word %q: use watch, show, ask or nothing\n", os.Args[1])
			os.Exit(2)
		}
	}
	if err := run(ctx, whom); err != nil {
		fmt.Fprintln(os.Stderr, "hello:", err)
		os.Exit(1)
	}
	if ctx.Err() != nil {
		fmt.Println("told to stop: goodbye")
	}
}

// serve prints the report, serves it, and says now and then that it is still there.
func serve(ctx context.Context, port string) error {
	report := report()
	fmt.Print(report)
	listener, err := net.Listen("tcp", ":"+port)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, report) }),
		ReadHeaderTimeout: 5 * time.Second,
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	fmt.Println("serving on port", port)
	started := time.Now()
	tick := time.NewTicker(quiet)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return server.Close()
		case err := <-failed:
			return err
		case <-tick.C:
			fmt.Println("still here after", time.Since(started).Round(time.Second))
		}
	}
}

// watch prints what the first container answers: as soon as it answers, and again when the answer changes.
func watch(ctx context.Context, port string) error {
	url := "http://127.0.0.1:" + port + "/"
	last := ""
	wait := 100 * time.Millisecond // the first container may still be starting
	for {
		answer, err := get(ctx, url)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && last != "no answer":
			fmt.Println("no answer yet:", err)
			last = "no answer"
		case err == nil && answer != last:
			fmt.Printf("%s answers:\n%s", url, answer)
			last, wait = answer, quiet
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// ask prints what is answered at a URL. It asks again, for at most patience, while nobody answers: whoever does may just be starting.
func ask(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		answer, err := get(ctx, url)
		if err == nil {
			fmt.Print(answer)
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func get(ctx context.Context, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	return string(raw), err
}

// report tells what this container was given.
func report() string {
	var s strings.Builder
	host, err := os.Hostname()
	if err != nil {
		host = err.Error()
	}
	fmt.Fprintf(&s, "hello from %s\n", host)
	for _, v := range interesting(os.Environ()) {
		fmt.Fprintf(&s, "environment: %s\n", v)
	}
	paths, err := filepath.Glob(devices)
	if err != nil || len(paths) == 0 {
		fmt.Fprintf(&s, "device: none at %s\n", devices)
	}
	for _, p := range paths {
		fmt.Fprintf(&s, "device: %s\n", describe(p))
	}
	return s.String()
}

// interesting picks what somebody put there on purpose: the CDI spec, the pod, the node.
func interesting(environment []string) []string {
	var out []string
	for _, v := range environment {
		for _, prefix := range []string{"EXAMPLE_", "POD_", "NODE_NAME=", "KUBERNETES_SERVICE_HOST=", "PORT="} {
			if strings.HasPrefix(v, prefix) {
				out = append(out, v)
				break
			}
		}
	}
	slices.Sort(out)
	return out
}

// describe tells what a device node is, and tries it.
func describe(path string) string {
	fi, err := os.Stat(path)
	if err != nil {
		return err.Error()
	}
	kind := "no device"
	switch {
	case fi.Mode()&os.ModeCharDevice != 0:
		kind = "character device"
	case fi.Mode()&os.ModeDevice != 0:
		kind = "block device"
	}
	number := "?:?"
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		number = fmt.Sprintf("%d:%d", major(st.Rdev), minor(st.Rdev))
	}
	return fmt.Sprintf("%s, %s %s, %s", path, kind, number, try(path))
}

// The kernel's encoding of a device number, as in <sys/sysmacros.h>.
func major(dev uint64) uint64 { return dev>>8&0xfff | dev>>32&^0xfff }
func minor(dev uint64) uint64 { return dev&0xff | dev>>12&^0xff }

// try reads and writes a few bytes.
func try(path string) string {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	buf := make([]byte, 4)
	n, err := f.Read(buf)
	if err != nil && !errors.Is(err, io.EOF) {
		return err.Error()
	}
	written, err := f.Write(buf)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("read %d bytes, wrote %d", n, written)
}
