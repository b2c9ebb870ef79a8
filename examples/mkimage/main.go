// Command mkimage makes a container image out of a compiled program, which it runs: an OCI archive, written without any
// container tool.
//
//	CGO_ENABLED=0 go build -o hello ./examples/hello
//	go run ./examples/mkimage -binary hello -name localhost/monopod/hello:latest -o hello.tar
//	monopod image load hello.tar
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"monopod.dev/monopod/internal/image/ociarchive"
)

func main() {
	binary := flag.String("binary", "", "the compiled program, statically linked")
	out := flag.String("o", "", "the archive to write")
	name := flag.String("name", "", "the image's full name, with its tag")
	arch := flag.String("arch", runtime.GOARCH, "the architecture that the program is compiled for")
	flag.Parse()
	if *binary == "" || *out == "" || *name == "" || flag.NArg() != 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := write(*binary, *out, *name, *arch); err != nil {
		fmt.Fprintln(os.Stderr, "mkimage:", err)
		os.Exit(1)
	}
	fmt.Println(*out, "holds", *name)
}

func write(binary, out, name, arch string) (err error) {
	data, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	program := filepath.Base(binary)
	built, err := ociarchive.Build(ociarchive.Image{
		Name:         name,
		Architecture: arch,
		Config:       ocispec.ImageConfig{Entrypoint: []string{"/" + program}},
		Layers: []ociarchive.Layer{{
			{Path: program, Data: data, Mode: 0o755},
			{Path: "etc/passwd", Data: []byte("root:x:0:0:root:/:/" + program + "\nnobody:x:65534:65534:nobody:/:/" + program + "\n")},
			{Path: "etc/group", Data: []byte("root:x:0:\nnogroup:x:65534:\n")},
			{Path: "tmp", Dir: true, Mode: 0o1777},
		}},
	})
	if err != nil {
		return err
	}
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return ociarchive.Write(f, built)
}
