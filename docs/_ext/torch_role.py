"""A link to a page of PyTorch's documentation: tools/pages/torch_docs.py says which.

:torch:`torch.nn.parallel.DistributedDataParallel`      shows the last part of the name
:torch:`torchrun <torch.distributed.run>`
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
        return [nodes.reference("", "", nodes.literal("", text), refuri=address, reftitle=name)], []


def setup(app):
    app.add_role("torch", Torch())
