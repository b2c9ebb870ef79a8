package openapi

import (
	"strings"
	"sync"

	restful "github.com/emicklei/go-restful/v3"
	"k8s.io/kube-openapi/pkg/builder"
	"k8s.io/kube-openapi/pkg/builder3"
	"k8s.io/kube-openapi/pkg/cached"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/common/restfuladapter"
	"k8s.io/kube-openapi/pkg/handler"
	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// Mux is where handlers are registered.
type Mux interface {
	common.PathHandler
	common.PathHandlerByGroupVersion
}

// Install serves /openapi/v2 and /openapi/v3 for the routes of container. Both documents are made when somebody asks for
// them, and only their encodings are kept: most servers are never asked, and the documents take several megabytes.
func Install(container *restful.Container, mux Mux, v2 *common.Config, v3 *common.OpenAPIV3Config) error {
	handler.NewOpenAPIServiceLazy(lazy(func() (*spec.Swagger, error) {
		document, err := builder.BuildOpenAPISpecFromRoutes(restfuladapter.AdaptWebServices(container.RegisteredWebServices()), v2)
		if err != nil {
			return nil, err
		}
		// Clients of v2 (kubectl before 1.27) take defaults for values.
		document.Definitions = handler.PruneDefaults(document.Definitions)
		return document, nil
	})).RegisterOpenAPIVersionedService("/openapi/v2", mux)

	service := handler3.NewOpenAPIService()
	if err := service.RegisterOpenAPIV3VersionedService("/openapi/v3", mux); err != nil {
		return err
	}
	for _, ws := range container.RegisteredWebServices() {
		service.UpdateGroupVersionLazy(strings.TrimPrefix(ws.RootPath(), "/"), lazy(func() (*spec3.OpenAPI, error) {
			return builder3.BuildOpenAPISpecFromRoutes(restfuladapter.AdaptWebServices([]*restful.WebService{ws}), v3)
		}))
	}
	return nil
}

// lazy makes a value that is built at the first call and handed out once: its reader caches what it derives from it for
// as long as the tag is the same, and asks again only for the tag.
func lazy[T any](build func() (*T, error)) cached.Value[*T] {
	const tag = "built"
	var mu sync.Mutex
	built := false
	return cached.Func(func() (*T, string, error) {
		mu.Lock()
		defer mu.Unlock()
		if built {
			return nil, tag, nil
		}
		document, err := build()
		if err != nil {
			return nil, "", err
		}
		built = true
		return document, tag, nil
	})
}
