package source

import "monopod.dev/monopod/internal/cdispec"

// CDIAnnotations begins the keys of annotations by which a container asks its runtime for CDI devices.
const CDIAnnotations = cdispec.AnnotationPrefix

// AnnotatedCDI are the CDI devices that annotations ask for, by key and then as they are listed. They need not be CDI names: what a runtime makes of
// them is its own affair. Who lists nothing asks for nothing.
func AnnotatedCDI(annotations map[string]string) (names []string) {
	for _, name := range cdispec.Annotated(annotations) {
		if name != "" {
			names = append(names, name)
		}
	}
	return names
}
