// Package images makes what tests run: small container images out of this machine's own Debian binaries, and a
// registry on loopback to pull them from. Nothing is downloaded.
//
// It needs these Debian packages: busybox-static, nginx-light (for Nginx), openssl (for OpenSSL), docker-registry (for StartRegistry). What is
// missing is said by name.
package images

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"monopod.dev/monopod/internal/image/ociarchive"
)

const searchPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Users that the images know, by name, user id and group id.
const (
	passwd = "root:x:0:0:root:/root:/bin/sh\nwww-data:x:33:33:www-data:/var/www:/bin/false\n" +
		"app:x:1000:1000:app:/home:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"
	group = "root:x:0:\nwww-data:x:33:\naudio:x:29:app\napp:x:1000:\nnogroup:x:65534:\n"
)

// Busybox is an image of one layer with Debian's static busybox and a link for each of its applets. It runs sh.
func Busybox(name string) (ociarchive.Image, error) {
	layer, err := busyboxLayer()
	if err != nil {
		return ociarchive.Image{}, err
	}
	return ociarchive.Image{
		Name:   name,
		Config: ocispec.ImageConfig{Cmd: []string{"sh"}, Env: []string{searchPath}},
		Layers: []ociarchive.Layer{layer},
	}, nil
}

func busyboxLayer() (ociarchive.Layer, error) {
	binary, err := readBinary("/bin/busybox", "busybox-static")
	if err != nil {
		return nil, err
	}
	applets, err := exec.Command("/bin/busybox", "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("test image: /bin/busybox --list: %w", err)
	}
	layer := ociarchive.Layer{{Path: "tmp", Dir: true, Mode: 0o1777}, {Path: "bin/busybox", Data: binary, Mode: 0o755}}
	for _, dir := range []string{"proc", "sys", "dev", "etc", "root", "run", "home", "usr/bin", "var/www"} {
		layer = append(layer, ociarchive.File{Path: dir, Dir: true})
	}
	for _, a := range strings.Fields(string(applets)) {
		if a != "busybox" {
			layer = append(layer, ociarchive.File{Path: "bin/" + a, Hardlink: "bin/busybox", Mode: 0o755})
		}
	}
	return append(layer, userFiles()...), nil
}

func userFiles() ociarchive.Layer {
	return ociarchive.Layer{
		{Path: "etc/passwd", Data: []byte(passwd)},
		{Path: "etc/group", Data: []byte(group)},
	}
}

// NginxIndex is what Nginx serves at /.
const NginxIndex = "<!DOCTYPE html><title>Welcome to nginx!</title><h1>Welcome to nginx!</h1>\n"

// Nginx is an image of two layers: busybox, and Debian's nginx with the shared libraries that it links to. It serves
// NginxIndex on the port, in the foreground, and ends on SIGQUIT.
func Nginx(name string, port int) (ociarchive.Image, error) {
	base, err := busyboxLayer()
	if err != nil {
		return ociarchive.Image{}, err
	}
	program, err := withLibraries("/usr/sbin/nginx", "nginx-light")
	if err != nil {
		return ociarchive.Image{}, err
	}
	conf := fmt.Sprintf("user root;\nworker_processes 1;\ndaemon off;\nerror_log stderr;\npid /run/nginx.pid;\n"+
		"events { worker_connections 64; }\n"+
		"http { access_log /dev/stdout; server { listen %d; root /usr/share/nginx/html; index index.html; } }\n", port)
	program = append(program,
		ociarchive.File{Path: "etc/nginx/nginx.conf", Data: []byte(conf)},
		ociarchive.File{Path: "usr/share/nginx/html/index.html", Data: []byte(NginxIndex)},
		ociarchive.File{Path: "var/log/nginx", Dir: true},
	)
	for _, dir := range []string{"body", "fastcgi", "proxy", "scgi", "uwsgi"} {
		program = append(program, ociarchive.File{Path: "var/lib/nginx/" + dir, Dir: true})
	}
	return ociarchive.Image{
		Name: name,
		Config: ocispec.ImageConfig{
			Cmd:          []string{"nginx"},
			Env:          []string{searchPath},
			StopSignal:   "SIGQUIT",
			ExposedPorts: map[string]struct{}{fmt.Sprintf("%d/tcp", port): {}},
		},
		Layers: []ociarchive.Layer{base, program},
	}, nil
}

// OpenSSL is an image of two layers: busybox, and Debian's openssl with the shared libraries that it links to. It runs sh.
func OpenSSL(name string) (ociarchive.Image, error) {
	base, err := busyboxLayer()
	if err != nil {
		return ociarchive.Image{}, err
	}
	program, err := withLibraries("/usr/bin/openssl", "openssl")
	if err != nil {
		return ociarchive.Image{}, err
	}
	return ociarchive.Image{
		Name: name, Config: ocispec.ImageConfig{Cmd: []string{"sh"}, Env: []string{searchPath}}, Layers: []ociarchive.Layer{base, program},
	}, nil
}

// withLibraries is a binary with the shared libraries that ldd finds for it, each where it is on this machine.
func withLibraries(path, debianPackage string) (ociarchive.Layer, error) {
	data, err := readBinary(path, debianPackage)
	if err != nil {
		return nil, err
	}
	layer := ociarchive.Layer{{Path: path, Data: data, Mode: 0o755}}
	out, err := exec.Command("ldd", path).Output()
	if err != nil {
		return nil, fmt.Errorf("test image: ldd %s: %w", path, err)
	}
	for _, word := range strings.Fields(string(out)) {
		if !strings.HasPrefix(word, "/") {
			continue
		}
		lib, err := readBinary(word, "libc6")
		if err != nil {
			return nil, err
		}
		layer = append(layer, ociarchive.File{Path: word, Data: lib, Mode: 0o755})
	}
	return layer, nil
}

func readBinary(path, debianPackage string) ([]byte, error) {
	real, err := filepath.EvalSymlinks(path)
	if err == nil {
		var data []byte
		if data, err = os.ReadFile(real); err == nil {
			return data, nil
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("test image: %s is missing; apt-get install %s", path, debianPackage)
	}
	return nil, fmt.Errorf("test image: %w", err)
}

// WriteArchive builds the images and writes them into one OCI archive, for `monopod image load`.
func WriteArchive(path string, imgs ...ociarchive.Image) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	var built []*ociarchive.Built
	for _, img := range imgs {
		b, err := ociarchive.Build(img)
		if err != nil {
			return err
		}
		built = append(built, b)
	}
	return ociarchive.Write(f, built...)
}
