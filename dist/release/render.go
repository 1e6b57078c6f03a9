package main

import (
	"bytes"
	"fmt"
	"io"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// builtImage is the image's name in the manifests.
const builtImage = "image: ovnkube:latest\n"

// render writes the manifests of a kustomization.
func render(out io.Writer, dir, image string) error {
	found, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return fmt.Errorf("render %s: %w", dir, err)
	}
	text, err := found.AsYaml()
	if err != nil {
		return fmt.Errorf("render %s: %w", dir, err)
	}
	if image != "" {
		text = bytes.ReplaceAll(text, []byte(builtImage), []byte("image: "+image+"\n"))
	}
	_, err = out.Write(text)
	return err
}
