package registry

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/core/remotes/docker/config"
	"github.com/containerd/errdefs"
	"github.com/pelletier/go-toml/v2"
)

// hostsConfig finds the hosts that serve a registry, from hosts.toml files.
type hostsConfig struct{ dir string }

// hostDir is config.HostOptions.HostDir: the folder with a host's configuration. A hosts.toml that cannot be
// understood is an error here; containerd's package would only log it and go on without the mirrors.
func (h hostsConfig) hostDir(host string) (string, error) {
	if h.dir == "" {
		return "", errdefs.ErrNotFound
	}
	dir, err := config.HostDirFromRoot(h.dir)(host)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "hosts.toml")
	raw, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return dir, nil // certificates only
	}
	if err != nil {
		return "", err
	}
	if err := checkHostsFile(raw); err != nil {
		return "", fmt.Errorf("registry configuration %s: %w: %w", path, err, errdefs.ErrInvalidArgument)
	}
	return dir, nil
}

// hostEntry holds the keys that hosts.toml may have for a host.
type hostEntry struct {
	Capabilities []string       `toml:"capabilities"`
	CA           any            `toml:"ca"`
	Client       any            `toml:"client"`
	SkipVerify   bool           `toml:"skip_verify"`
	Header       map[string]any `toml:"header"`
	OverridePath bool           `toml:"override_path"`
	DialTimeout  string         `toml:"dial_timeout"`
}

func (e hostEntry) check() error {
	for _, c := range e.Capabilities {
		if !slices.Contains([]string{"pull", "resolve", "push", "referrers"}, strings.ToLower(c)) {
			return fmt.Errorf("unknown capability %q, known are pull, resolve, push and referrers", c)
		}
	}
	if e.DialTimeout != "" {
		if _, err := time.ParseDuration(e.DialTimeout); err != nil {
			return fmt.Errorf("dial_timeout: %w", err)
		}
	}
	if e.CA != nil && !isStrings(e.CA) {
		return fmt.Errorf("ca: %v is neither a path nor a list of paths", e.CA)
	}
	if e.Client != nil && !isClient(e.Client) {
		return fmt.Errorf("client: %v is neither a path, nor a list of paths, nor a list of pairs of a certificate and its key", e.Client)
	}
	for name, v := range e.Header {
		if !isStrings(v) {
			return fmt.Errorf("header %q: it is neither a string nor a list of strings", name) // its value may be a secret
		}
	}
	return nil
}

// isStrings says whether a value of a toml file is a string, or a list of strings.
func isStrings(v any) bool {
	list, ok := v.([]any)
	if !ok {
		_, ok = v.(string)
		return ok
	}
	return !slices.ContainsFunc(list, func(v any) bool { _, ok := v.(string); return !ok })
}

// isClient says whether a value is what containerd takes for key pairs: PATH, [PATH...] or [[CERTIFICATE, KEY]...].
func isClient(v any) bool {
	list, ok := v.([]any)
	if !ok {
		return isStrings(v)
	}
	return !slices.ContainsFunc(list, func(v any) bool {
		pair, ok := v.([]any)
		return ok && len(pair) != 2 || !isStrings(v)
	})
}

// checkHostsFile finds what is wrong with a hosts.toml: a key that nobody knows is an error too, since it would ask for
// something in vain.
func checkHostsFile(raw []byte) error {
	var file struct {
		hostEntry
		Server string               `toml:"server"`
		Host   map[string]hostEntry `toml:"host"`
	}
	err := toml.NewDecoder(bytes.NewReader(raw)).DisallowUnknownFields().Decode(&file)
	var unknown *toml.StrictMissingError
	if errors.As(err, &unknown) && len(unknown.Errors) > 0 {
		row, _ := unknown.Errors[0].Position()
		return fmt.Errorf("line %d: unknown key %q", row, strings.Join(unknown.Errors[0].Key(), "."))
	}
	var wrong *toml.DecodeError
	if errors.As(err, &wrong) && len(wrong.Key()) > 0 {
		row, _ := wrong.Position()
		return fmt.Errorf("line %d: %s has a value of the wrong type", row, strings.Join(wrong.Key(), "."))
	}
	if err != nil {
		return err
	}
	if err := errors.Join(checkHostURL(file.Server), file.check()); err != nil {
		return fmt.Errorf("server: %w", err)
	}
	for host, e := range file.Host {
		if err := errors.Join(checkHostURL(host), e.check()); err != nil {
			return fmt.Errorf("host %q: %w", host, err)
		}
	}
	return nil
}

func checkHostURL(host string) error {
	if host == "" {
		return nil
	}
	if !strings.HasPrefix(host, "http") {
		host = "https://" + host
	}
	u, err := url.Parse(host)
	if err == nil && u.Host == "" {
		err = fmt.Errorf("%q has no host", host)
	}
	return err
}
