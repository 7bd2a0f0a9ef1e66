"""A link to a page of PyTorch's documentation.

    :torch:`torch.nn.parallel.DistributedDataParallel`
    :torch:`torchrun <torch.distributed.run>`

The first shows the last part of the name. The build fails for a name that the installed torch
lacks. tools/pages/torch_docs.py says which page a name has; the build asks no other host.
"""

from docutils import nodes
from sphinx.util.docutils import SphinxRole

from tools.errors import UserError
from tools.pages import torch_docs


class Torch(SphinxRole):
    def run(self):
        text, name = torch_docs.split(self.text)
        try:
            address = torch_docs.address(name)
        except UserError as error:
            message = self.inliner.reporter.error(str(error), line=self.lineno)
            return [self.inliner.problematic(self.rawtext, self.rawtext, message)], [message]
        literal = nodes.literal("", text)
        return [nodes.reference("", "", literal, refuri=address, reftitle=name)], []


def setup(app):
    app.add_role("torch", Torch())
